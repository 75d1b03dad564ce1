"""Pure values: hosts, plan, readings, snapshot, slots, alarms, series. No I/O, no Dask, no SSH."""
