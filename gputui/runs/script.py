"""A plain Python file on a cluster: run as `python` would run it, and its `Client()` finds it.

`--run SCRIPT.py` starts `python -m gputui.runs.script PARENT ERROR_FILE SCRIPT [ARG…]`: a process
of its own, because a script owns its process: its main thread and signals, `os._exit`, threads
that never end, a crash of a C library; none of these may take the hold on the cluster along.

The environment names the cluster, for the script and for processes that it spawns. Nothing secret
is there, in argv, in a file or in Dask's configuration (which Dask writes into the environment of
processes that it starts): that names the scheduler, `security` below, which asks the cluster's
head for the certificate, and `dask_setup`.

The file is executed here, and not by runpy, because a script's module must outlive its last
line: threads and exit handlers still use it.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from traceback import format_exception
from types import ModuleType
from typing import Any

from gputui.client.head_connection import HeadConnection
from gputui.engine import dask_settings
from gputui.errors import ExitCode, HeadError, UsageError
from gputui.model.plain_text import safe
from gputui.process.lifetime import die_with
from gputui.protocol.frontend import Attached

CLUSTER = "GPUTUI_SCRIPT"
"""In the environment of a script and its child processes: the scheduler's address, the head's
socket and the script's folder, whose modules the cluster gets."""
STOPPED = b"stopped"
"""Written by the command to the script's error file once its cluster is stopped."""
NOTED_S = 0.5


def main() -> None:
    """Find the cluster, and become the script; of an error only its own traceback is shown."""
    parent, descriptor, *sys.argv = sys.argv[1:]
    error_file = int(descriptor)
    die_with(int(parent))
    os.set_inheritable(error_file, False)
    _find_cluster()
    try:
        _execute(sys.argv[0])
    except SystemExit as exit_:
        if isinstance(exit_.code, str):
            os.write(error_file, exit_.code.encode())
        raise
    except BaseException as error:
        trace = error.__traceback__
        assert trace and trace.tb_next  # this function and `_execute`, which are not the script's
        error.__traceback__ = trace.tb_next.tb_next
        stopped = _lost_cluster(error) and _was_stopped(error_file)
        os.ftruncate(error_file, 0)
        os.write(error_file, "".join(format_exception(error)).encode(errors="replace"))
        if stopped:  # the command has said why
            sys.exit(ExitCode.NO_CLUSTER)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _find_cluster() -> None:
    """Have `Client()` find the cluster, here and in child processes, and know its settings."""
    import dask.config
    import distributed  # its defaults come before the settings of this cluster

    logging.getLogger("distributed.preloading").setLevel(logging.WARNING)
    for part in ("client", "batched"):  # the command says more clearly that it was lost
        logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)
    address, socket, _ = _cluster()
    preload = dask_settings.listed(dask.config.get("distributed.client.preload"))
    preload.append("gputui.runs.script")
    settings = {
        "scheduler-address": address,
        "distributed.client.security-loader": "gputui.runs.script.security",
        "distributed.client.preload": preload,
    }
    os.environ |= {
        "DASK_SCHEDULER_ADDRESS": address,
        "DASK_DISTRIBUTED__CLIENT__SECURITY_LOADER": "gputui.runs.script.security",
        "DASK_DISTRIBUTED__CLIENT__PRELOAD": repr(preload),
    }
    with contextlib.suppress(HeadError):  # the command says so, and ends the script
        _attached(socket)
    dask.config.set(settings)
    _take_no_keywords_of_local_clusters(distributed.Client)


def _take_no_keywords_of_local_clusters(client_class: type) -> None:
    """Have `Client(n_workers=4)` mean `Client()`, and say so."""
    make = client_class.__init__  # type: ignore[misc]
    own = signature(make).parameters

    @wraps(make)
    def init(self: Any, address: Any = None, *args: Any, **keywords: Any) -> None:
        if address is None and (others := keywords.keys() - own):
            listed = ", ".join(sorted(others))
            print(safe(f"gputui: Client: no effect on this cluster: {listed}"), file=sys.stderr)
            keywords = {name: keywords[name] for name in keywords.keys() & own}
        make(self, address, *args, **keywords)

    client_class.__init__ = init  # type: ignore[misc]


def _cluster() -> tuple[str, ...]:
    """Return the scheduler's address, the head's socket and the script's folder."""
    return tuple(json.loads(os.environ.get(CLUSTER, '["", "", ""]')))


@cache
def _attached(socket: str) -> Attached:
    """Return how to join the cluster of the head behind a socket; its settings hold from now on."""

    async def attach() -> Attached:
        connection = await HeadConnection.open(socket, frontend="python")
        await connection.close()
        return connection.attached

    with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
        attached = thread.submit(asyncio.run, attach()).result()
    dask_settings.apply(attached.credentials.dask_config_json)
    return attached


def security(info: Mapping[str, Any]) -> Any:
    """Return the TLS of the cluster at `info["address"]`; None where that is another one.

    Source: Dask's configuration reference, `distributed.client.security-loader`.
    """
    address, socket, _ = _cluster()
    if info["address"] != address:
        return None
    from gputui.engine import tls

    credentials = _attached(socket).credentials
    return tls.security(credentials.certificate_pem, credentials.key_pem)


async def dask_setup(client: Any) -> None:
    """Give the modules next to the script to its cluster, and to no other one.

    Source: Dask's configuration reference, `distributed.client.preload`. An exception here is
    logged by distributed 2026.8, and the client goes on: a script whose modules the cluster does
    not take would run those of another one. So it ends here.
    """
    address, _, folder = _cluster()
    if client.scheduler.address != address:
        return
    from gputui.runs.modules import send

    try:
        await send(client, Path(folder))
    except (UsageError, ImportError) as error:
        sys.stdout.flush()
        print(f"gputui: {error}", file=sys.stderr, flush=True)
        os._exit(ExitCode.WRONG_USAGE)


def _execute(script: str) -> None:
    module = ModuleType("__main__")
    module.__file__ = str(Path(script).absolute())
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.path.insert(0, _cluster()[2])
    code = compile(Path(script).read_bytes(), module.__file__, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _lost_cluster(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, is that the scheduler is gone."""
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    lost = (CancelledError, CommClosedError, OSError, RuntimeError)
    return error is not None and (
        isinstance(error, lost) or _lost_cluster(error.__cause__ or error.__context__)
    )


def _was_stopped(error_file: int) -> bool:
    """Return whether the command has noted that its cluster was stopped, waiting a moment."""
    until = time.monotonic() + NOTED_S
    while os.pread(error_file, len(STOPPED), 0) != STOPPED:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    from gputui.runs.script import main as main_of_module  # as `security` is found

    main_of_module()
