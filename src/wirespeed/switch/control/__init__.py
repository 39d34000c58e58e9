"""The control socket of a running switch: local, for one user, a line of JSON for each request and each answer."""
