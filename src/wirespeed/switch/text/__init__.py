"""The text that ``ovs-ofctl`` reads and prints, for flows, groups and meters."""
