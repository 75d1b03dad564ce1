"""The fleet view: rows of GPUs, rows of hosts, a heat map, and what they share."""
