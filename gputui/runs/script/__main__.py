"""`python -m gputui.runs.script FD SCRIPT [ARG…]`: be `python SCRIPT [ARG…]` on a cluster.

The file is executed here, and not by runpy, because a script's module must outlive its last
line: threads and exit handlers still use it.
"""

import os
import sys
from pathlib import Path
from traceback import format_exception
from types import ModuleType, TracebackType

from gputui.errors import ExitCode
from gputui.process.lifetime import die_with
from gputui.runs.script.handover import Handover

INTERRUPTED = 130


def main() -> None:
    """Take the cluster, and become the script; of an error only its own traceback is shown."""
    descriptor, *sys.argv = sys.argv[1:]
    handover = Handover.read(int(descriptor))
    die_with(handover.parent)
    os.set_inheritable(handover.error_file, False)
    handover.take()
    sys.path.insert(0, handover.folder)
    try:
        _execute(sys.argv[0])
    except SystemExit as exit_:
        if isinstance(exit_.code, str):
            os.write(handover.error_file, exit_.code.encode())
        raise
    except BaseException as error:
        error.__traceback__ = _below_this_file(error.__traceback__)
        stopped = _lost_cluster(error) and handover.was_stopped()
        os.ftruncate(handover.error_file, 0)
        os.write(handover.error_file, "".join(format_exception(error)).encode(errors="replace"))
        if not stopped:  # else the command has said why
            sys.excepthook(type(error), error, error.__traceback__)
        if stopped:
            sys.exit(ExitCode.NO_CLUSTER)
        sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _lost_cluster(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, is that the scheduler is gone."""
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    lost = (CancelledError, CommClosedError, OSError, RuntimeError)
    return error is not None and (
        isinstance(error, lost) or _lost_cluster(error.__cause__ or error.__context__)
    )


def _execute(script: str) -> None:
    module = ModuleType("__main__")
    module.__file__ = str(Path(script).absolute())
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    code = compile(Path(script).read_bytes(), module.__file__, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _below_this_file(traceback: TracebackType | None) -> TracebackType | None:
    while traceback and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


if __name__ == "__main__":
    main()
