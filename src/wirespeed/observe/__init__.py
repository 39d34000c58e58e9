"""Reading a running instance: rates, the live table."""
