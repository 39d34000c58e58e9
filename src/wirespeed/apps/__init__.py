"""Whole network functions, made of the parts below."""
