"""Why arrays go another way than they could: in the worker's log, once for each reason."""

_said: set[str] = set()


def say_once(reason: str) -> None:
    """Print a reason, unless it was printed before."""
    if reason not in _said:
        _said.add(reason)
        print(f"transfers: {reason}", flush=True)
