"""A frontend's first line and a head's refusal of it, which are alike in every version.

The frontend names its version, `["Attach", 7]`. A head of another one answers `["Refused", 0, why]`
and ends the connection; only then do the two speak as their common version does.
"""

import json
from typing import Any

from gputui.protocol import VERSION
from gputui.protocol.codec import to_line

HELLO = to_line(["Attach", VERSION])


def refusal(line: bytes) -> str:
    """Return why a frontend is turned away by its first line; "" when it is not.

    >>> refusal(HELLO), refusal(b"hello")
    ('', 'the first message must be Attach')
    """
    match _parsed(line):
        case ["Attach", int(version), *_]:
            if version == VERSION:
                return ""
            return (
                f"this cluster's head speaks version {VERSION} of the protocol, and this frontend "
                f"{version}: use the gputui that started the cluster, or restart the cluster"
            )
    return "the first message must be Attach"


def refused(reason: str) -> bytes:
    """Return the line that turns a frontend away.

    >>> why_refused(refused("no")), why_refused(b'["Attached",{}]')
    ('no', '')
    """
    return to_line(["Refused", 0, reason])


def why_refused(line: bytes) -> str:
    """Return why a head turns this frontend away; "" where it does not."""
    match _parsed(line):
        case ["Refused", 0, str(reason)]:
            return reason
    return ""


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
