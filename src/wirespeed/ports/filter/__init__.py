"""Filters on ports: ``filter=tcp port 80`` of any port, by a stage around the port's own or attached in the kernel."""
