"""What rules do: one immutable record for each kind of action."""
