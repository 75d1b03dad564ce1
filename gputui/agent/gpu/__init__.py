"""The GPUs of this host, read through NVML; the only package that imports pynvml."""
