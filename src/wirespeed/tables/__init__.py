"""Lookup structures, key to value; they know no packets."""
