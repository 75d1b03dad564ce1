"""Preload of a script's `Client()`: send the cluster the modules next to the script.

Source: Dask's configuration reference, `distributed.client.preload`. An exception here is logged by
distributed 2026.8, and the client goes on: a script whose modules the cluster does not take would
run those of another one. So it ends here.
"""

import os
import sys
from pathlib import Path

from distributed import Client

from gputui.errors import ExitCode, UsageError
from gputui.runs.script.handover import taken
from gputui.runs.script.sending import send


async def dask_setup(client: Client) -> None:
    """Give the modules to the cluster that the script was handed, and to no other one."""
    handover = taken(client.scheduler.address)
    if handover is None:
        return
    try:
        await send(client, Path(handover.folder))
    except (UsageError, ImportError) as error:
        sys.stdout.flush()
        print(f"gputui: {error}", file=sys.stderr, flush=True)
        os._exit(ExitCode.WRONG_USAGE)
