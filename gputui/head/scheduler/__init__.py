"""The scheduler process: Dask's Scheduler over TLS, and the reporter that tells the head."""
