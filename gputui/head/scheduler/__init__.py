"""The scheduler process: Dask's Scheduler over TLS, and the reporter to the head."""
