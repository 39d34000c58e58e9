"""Taps and tuns: interfaces of the kernel whose other side is a program."""
