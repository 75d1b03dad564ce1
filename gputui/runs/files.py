"""Files that a run writes where asked: no link is followed, so that no one who may
write into that folder chooses what is overwritten."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_new(path: Path) -> BinaryIO:
    """Make a file to be written and read; raises OSError where anything has that name."""
    return _open(path, os.O_EXCL)


def open_over(path: Path) -> BinaryIO:
    """Make a file, or empty the one that is there; raises OSError for a link, a device, a pipe."""
    file = _open(path, os.O_NONBLOCK)
    file.truncate(0)
    return file


def write_over(path: Path, data: bytes) -> None:
    """Write a file, or over the one that is there; raises OSError, and leaves no part of it."""
    file = open_over(path)
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _open(path: Path, flags: int) -> BinaryIO:
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a link; name the file itself", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return os.fdopen(descriptor, "r+b")
