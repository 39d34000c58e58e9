"""The packet port: an interface of the kernel through packet sockets with rings of slots in shared memory."""
