"""The result of `cluster.adapt()`: Dask's interface to a loop that the head runs."""

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

import dask.config
from dask.utils import parse_timedelta
from distributed.deploy import adaptive
from tornado.ioloop import PeriodicCallback

from gputui.engine.overrides import overriding
from gputui.protocol.frontend import Adapt

if TYPE_CHECKING:
    from gputui.client.running import RunningCluster

MOST_WORKERS = 2**31
"""Where no maximum is set."""


@overriding(adapt="self", stop="self reason")
class Adaptive(adaptive.Adaptive):  # type: ignore[misc]
    """The bounds, and `stop`; nothing runs here, and nothing stops when this is dropped."""

    def __init__(self, cluster: "RunningCluster", **options: Any) -> None:
        super().__init__(cluster, **{**options, "interval": 0})
        interval = options.get("interval") or dask.config.get("distributed.adaptive.interval")
        self.interval = parse_timedelta(interval, "seconds")
        # Never started: it says to those who look at it that the number is adaptive.
        shown = PeriodicCallback(lambda: None, self.interval * 1000)
        self.periodic_callback: PeriodicCallback | None = shown
        self.state = "running"
        self._asked = cluster._ask(
            Adapt(
                0,
                self.minimum,
                MOST_WORKERS if math.isinf(self.maximum) else self.maximum,
                interval_s=self.interval,
                wait_count=self.wait_count,
                target_duration_s=self.target_duration,
            )
        )

    def __await__(self) -> Generator[Any, None, Self]:
        if hasattr(self._asked, "__await__"):
            yield from self._asked.__await__()
        return self

    async def adapt(self) -> None:
        """Do nothing: the head looks by itself."""

    def stop(self, reason: str = "unknown") -> None:
        """Leave the number of workers as it is from now on."""
        if self.state == "running":
            self.periodic_callback, self.state = None, "stopped"
            self.cluster._ask(Adapt(0, self.minimum, self.minimum, on=False))

    def __del__(self) -> None:
        """Leave the head at it."""
