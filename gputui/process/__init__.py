"""Child processes, and what the kernel says of them: starting, watching, ending; /proc."""
