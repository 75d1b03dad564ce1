"""The cluster's mutual TLS, as Dask takes it: one certificate for scheduler, workers and clients.

Imports distributed. The private key stays in memory. A port that strangers can reach bounds how
many handshakes it waits for, and how long.
"""

import asyncio
from collections.abc import Mapping
from ssl import Purpose, SSLContext
from typing import Any

from distributed.comm import registry
from distributed.comm.tcp import TLS, TLSBackend, TLSListener
from distributed.security import Security

from gputui.engine.overrides import overriding
from gputui.process.procfs import memory_file

HANDSHAKE_S = 10.0
"""A peer that has not finished TLS's handshake by then is closed."""
HANDSHAKES = 256
"""Handshakes that a port waits for at once; one more closes the oldest, which is the slowest."""


@overriding(_get_tls_context="self tls purpose")
class MemorySecurity(Security):  # type: ignore[misc]
    """Dask's settings of TLS, with certificate and key as PEM text that goes to no disk.

    Python's ssl reads a key from a file only. distributed 2026.8 writes one to a temporary
    folder, which a process that is killed leaves behind.
    """

    def _get_tls_context(self, tls: Mapping[str, Any], purpose: Purpose) -> SSLContext:
        with memory_file(tls["cert"]) as certificate, memory_file(tls["key"]) as key:
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


@overriding(_prepare_stream="self stream address")
class GuardedListener(TLSListener):  # type: ignore[misc]
    """A port whose unfinished handshakes are bounded in number and time.

    distributed 2026.8 waits for each of them without a bound: those of a flood take all file
    descriptors, and asyncio then logs every connection that it cannot accept.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._handshakes: dict[int, Any] = {}
        """Streams by id, the oldest first."""

    async def _prepare_stream(self, stream: Any, address: str) -> Any:
        if len(self._handshakes) >= HANDSHAKES:
            self._handshakes.pop(next(iter(self._handshakes))).close()
        self._handshakes[id(stream)] = stream
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                return await super()._prepare_stream(stream, address)
        except TimeoutError:
            stream.close()
            return None
        finally:
            self._handshakes.pop(id(stream), None)


@overriding(_listener_class=None, get_connector="self")
class GuardedBackend(TLSBackend):  # type: ignore[misc]
    """Dask's `tls://` with guarded ports, and one class of comms in both directions."""

    _listener_class = GuardedListener

    def get_connector(self) -> Any:
        """Return the connector to other processes."""
        connector = super().get_connector()
        connector.comm_class = GuardedListener.comm_class
        return connector


def guard_ports(comm_class: type[TLS] = TLS) -> None:
    """Guard the ports that Dask opens in this process from now on, with comms of this class."""
    GuardedListener.comm_class = comm_class
    registry.backends["tls"] = GuardedBackend()
