"""Doing to a packet what its path says."""
