"""The cluster's mutual TLS, as Dask takes it: one certificate for scheduler, workers and clients.

Imports distributed. The private key stays in memory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ssl import Purpose, SSLContext
from typing import Any

from distributed.security import Security


class MemorySecurity(Security):  # type: ignore[misc]
    """Dask's settings of TLS, with certificate and key as PEM text that goes to no disk.

    Python's ssl reads a key from a file only. distributed 2026.8 writes one to a temporary
    folder, which a process that is killed leaves behind.
    """

    def _get_tls_context(self, tls: Mapping[str, Any], purpose: Purpose) -> SSLContext:
        with _memory_file(tls["cert"]) as certificate, _memory_file(tls["key"]) as key:
            context: SSLContext = super()._get_tls_context(
                {**tls, "cert": certificate, "key": key}, purpose
            )
            return context


def security(certificate_pem: str, key_pem: str) -> Security:
    """Return mutual TLS with one certificate for all, from PEM text."""
    return MemorySecurity(
        require_encryption=True,
        tls_ca_file=certificate_pem,
        **{
            f"tls_{role}_{part}": pem
            for role in ("client", "worker", "scheduler")
            for part, pem in (("cert", certificate_pem), ("key", key_pem))
        },
    )


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file in this process's memory. Source: memfd_create(2)."""
    descriptor = os.memfd_create("gputui")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
