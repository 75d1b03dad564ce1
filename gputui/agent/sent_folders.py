"""Folders that came for programs: unpacked in the agent's scratch, and removed with the last of
them."""

import asyncio
import shutil
import tarfile
from pathlib import Path

from gputui.protocol.programs import FolderTaken, SendFolder, unpacked


class SentFolders:
    """A folder for each run that one was sent for."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._turn = asyncio.Lock()

    def path(self, run: str) -> Path:
        """Return where a run's folder is."""
        return self._scratch / f"sent-{run}"

    async def take(self, order: SendFolder) -> FolderTaken:
        """Keep a piece of a folder, and unpack the whole after the last."""
        async with self._turn:
            try:
                await asyncio.to_thread(self._take, order)
            except (OSError, EOFError, tarfile.TarError) as error:
                return FolderTaken(order.run, order.start, str(error))
        return FolderTaken(order.run, order.start)

    async def remove(self, run: str) -> None:
        """Remove a run's folder, where it has one."""
        async with self._turn:
            await asyncio.to_thread(shutil.rmtree, self.path(run), ignore_errors=True)

    def _take(self, order: SendFolder) -> None:
        folder = self.path(order.run)
        folder.mkdir(mode=0o700, exist_ok=True)
        packed = folder / f"{order.run}.tar.gz"
        if order.data:
            with packed.open("ab" if order.start else "wb") as file:
                file.write(unpacked(order.data))
            return
        with tarfile.open(packed) as archive:
            packed.unlink()
            # As it was: links that lead out of the folder, too. Before 3.11.4 none is wanted.
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)
            archive.extractall(folder)
