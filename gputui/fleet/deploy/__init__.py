"""From a host that is reached to a running agent there: packing, loading, making ready."""
