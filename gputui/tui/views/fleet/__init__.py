"""The fleet view: rows of GPUs, rows of hosts, and a heat map.

Columns of GPU rows are in `gpu_columns`, of host rows in `host_rows`, cells of the heat map in
`heat_cells`; filter, order, folds and marks in `selection`. `fleet_view` puts them together.
"""
