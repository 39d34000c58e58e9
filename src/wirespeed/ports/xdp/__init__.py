"""AF_XDP: frames of a network interface's queues, exchanged with the kernel through four rings in shared memory."""
