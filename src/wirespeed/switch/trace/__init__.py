"""What happens to one packet, told step by step, and compared with what the compiled translation makes of it."""
