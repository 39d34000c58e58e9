"""What both sides of a virtqueue share: features, guest memory, the layouts of both ring formats."""
