"""Notes the first call of each of gputui's functions, in every process that has GPUTUI_TRACE set.

Python imports a module of this name at its start, where PYTHONPATH has its folder.
"""

import os
import sys
import threading
import time
from types import CodeType, FrameType


def _trace(folder: str) -> None:
    seen: set[CodeType] = set()
    notes = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def called(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            _, here, path = code.co_filename.rpartition("/gputui/")
            if here:
                line = f"{time.monotonic()} gputui/{path} {code.co_qualname}\n"
                os.write(notes, line.encode())

    threading.setprofile(called)
    sys.setprofile(called)


if "GPUTUI_TRACE" in os.environ:
    _trace(os.environ["GPUTUI_TRACE"])
