"""Channels whose two ends are in the process of a test."""

from typing import Any

from gputui.protocol.streams import memory_streams
from gputui.protocol.typed_codec import TypedChannel


def memory_pair(
    one_receives: Any, other_receives: Any
) -> tuple[TypedChannel[Any, Any], TypedChannel[Any, Any]]:
    """Return the two ends of a channel."""
    one, other = memory_streams()
    return TypedChannel(one, one_receives), TypedChannel(other, other_receives)
