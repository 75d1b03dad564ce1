"""Move arrays between workers of one host: by handle, not through the connection.

Control stays on Dask's comm, over mutual TLS. Where both ends of a `get_data` between two workers
are on one host, `comm` has the owner's values packed (`packing`): a large host buffer goes as a
memory file that the reader maps, a device array as a CUDA IPC handle from which the reader copies
over NVLink or PCIe (`cuda_ipc`). `loans` says who can reach whose memory, and how long the owner
holds what it lent. Whatever fails is asked for as bytes.
"""
