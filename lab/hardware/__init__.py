"""The hardware of the nodes: sysfs, fakes of its programs, platforms."""
