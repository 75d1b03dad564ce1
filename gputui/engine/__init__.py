"""What is Dask's: its settings, TLS, and the serializers of device arrays."""
