"""What a script's `Client()` does first: it gives the cluster the modules beside the script.

Source: Dask's configuration reference, `distributed.client.preload`.
"""

from pathlib import Path

from distributed import Client

from gputui.run.script.handover import taken
from gputui.run.script.sending import send_modules


async def dask_setup(client: Client) -> None:
    """Give the modules to the cluster that the script was handed, and to no other one."""
    handover = taken(client.scheduler.address)
    if handover is not None:
        await send_modules(client, Path(handover.folder))
