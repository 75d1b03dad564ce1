"""The fleet view: rows of GPUs, rows of hosts, and a heat map.

`rows` draws GPUs and hosts from the table of all metrics, `rendering/metrics.py`; `selection`
chooses those in sight; `fleet_view` puts them together.
"""
