"""The fleet view: rows of GPUs, rows of hosts, and a heat map.

`metrics` is the table of all readings, `rows` draws GPUs and hosts from it, `selection` chooses
those in sight; `fleet_view` puts them together.
"""
