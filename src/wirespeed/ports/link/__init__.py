"""Network interfaces of the kernel, as the ports that stand on them see them: names, states, rights, and changes."""
