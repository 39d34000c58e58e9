"""The device side of virtio-net over a Unix socket: what a virtual machine or a container attaches to."""
