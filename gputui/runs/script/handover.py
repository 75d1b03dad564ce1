"""Hand a script's process its cluster through a pipe, for Dask's `Client()` to find there.

Nothing secret is in argv, in the environment, in a file or in Dask's configuration (which Dask
writes into the environment of processes that it starts): the configuration names the scheduler
and `security` below, which `Client` asks for the certificate, and `gputui.runs.script.preload`. A
process that the script spawns finds it through its environment, and asks the cluster's head.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gputui.engine import dask_settings

if TYPE_CHECKING:
    from distributed.security import Security

STOPPED = b"stopped"
"""Written by the command to the script's error file once its cluster is stopped."""
NOTED_S = 0.5

SPAWNED = "GPUTUI_SCRIPT"
"""In the environment of a script's child processes: the scheduler's address, the head's socket and
the script's folder."""

_taken: dict[str, "Handover"] = {}
"""The cluster of this process, by its scheduler's address."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The cluster of a script, and whose script it is."""

    socket: str
    """Of the cluster's head: a path."""
    address: str
    certificate_pem: str
    key_pem: str
    dask_config_json: str
    folder: str
    """The script's folder; the cluster gets the modules in it."""
    parent: int
    """The pid of the command: the script ends with it."""
    error_file: int = -1
    """The descriptor of the file that takes the traceback of a script that fails; -1 for none."""

    def write(self, descriptor: int) -> None:
        """Write this to a pipe, and close it."""
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)

    def was_stopped(self) -> bool:
        """Return whether the command has noted that its cluster was stopped, waiting a moment."""
        until = time.monotonic() + NOTED_S
        while os.pread(self.error_file, len(STOPPED), 0) != STOPPED:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    @classmethod
    def read(cls, descriptor: int) -> "Handover":
        """Read a handover from a pipe, and close it."""
        with os.fdopen(descriptor) as file:
            return cls(**json.load(file))

    def take(self) -> None:
        """Make this the cluster that `Client()` finds in this process."""
        import dask.config
        import distributed  # noqa: F401 - its defaults come before the settings of this cluster

        logging.getLogger("distributed.preloading").setLevel(logging.WARNING)
        for part in ("client", "batched"):  # the command says more clearly that it was lost
            logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)
        dask_settings.apply(self.dask_config_json)
        preload = [*dask.config.get("distributed.client.preload"), "gputui.runs.script.preload"]
        dask.config.set(
            {
                "scheduler-address": self.address,
                "distributed.client.security-loader": "gputui.runs.script.security",
                "distributed.client.preload": preload,
            }
        )
        os.environ |= {
            "DASK_SCHEDULER_ADDRESS": self.address,
            "DASK_DISTRIBUTED__CLIENT__SECURITY_LOADER": "gputui.runs.script.security",
            "DASK_DISTRIBUTED__CLIENT__PRELOAD": repr(preload),
            SPAWNED: json.dumps([self.address, self.socket, self.folder]),
        }
        _taken[self.address] = self


def taken(address: str) -> Handover | None:
    """Return the cluster at an address, where this process was handed it, or one that spawned it.

    Raises HeadError where that cluster is gone.
    """
    spawned = os.environ.get(SPAWNED)
    if address not in _taken and spawned and json.loads(spawned)[0] == address:
        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            _taken[address] = thread.submit(asyncio.run, _ask(*json.loads(spawned))).result()
        dask_settings.apply(_taken[address].dask_config_json)
    return _taken.get(address)


async def _ask(address: str, socket: str, folder: str) -> Handover:
    """Attach to the head behind a socket, and return its address and certificate."""
    from gputui.client.head_connection import HeadConnection

    connection = await HeadConnection.open(socket, frontend="python")
    await connection.close()
    attached = connection.attached
    return Handover(
        socket=socket,
        address=address,
        certificate_pem=attached.certificate_pem,
        key_pem=attached.key_pem,
        dask_config_json=attached.dask_config_json,
        folder=folder,
        parent=os.getppid(),
    )


def security(info: Mapping[str, Any]) -> "Security | None":
    """Return the TLS of the cluster at `info["address"]`; None where that is another one.

    Source: Dask's configuration reference, `distributed.client.security-loader`.
    """
    handover = taken(info["address"])
    if handover is None:
        return None
    from gputui.engine import tls

    return tls.security(handover.certificate_pem, handover.key_pem)
