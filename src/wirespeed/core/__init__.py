"""Memory, packets and how they pass between threads."""
