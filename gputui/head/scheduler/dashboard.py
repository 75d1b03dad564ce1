"""Guard Dask's dashboard: it is for browsers on this machine, and pages that it served.

A page of another site that a browser has open can send requests to loopback, too (DNS rebinding,
cross-site WebSockets). Its Host or Origin gives it away.
"""

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import AnyMatches, Matcher, Rule, RuleRouter
from tornado.web import Application, ErrorHandler

from gputui.errors import HeadError


def checked_address(address: str) -> str:
    """Return where the dashboard is to listen; raises HeadError where that is not loopback.

    >>> checked_address("127.0.0.1:8787")
    '127.0.0.1:8787'
    >>> checked_address(":8787")
    Traceback (most recent call last):
    gputui.errors.HeadError: the dashboard listens on loopback only, not on ':8787': \
write 127.0.0.1:PORT, and use `ssh -L` from elsewhere
    """
    if not _is_loopback(_name(address)):
        raise HeadError(
            f"the dashboard listens on loopback only, not on {address!r}: "
            "write 127.0.0.1:PORT, and use `ssh -L` from elsewhere"
        )
    return address


def guarded(application: Any) -> RuleRouter:
    """Return an application that answers 403 to requests that other sites made."""
    refuse = Application([(r".*", ErrorHandler, {"status_code": 403})])
    return RuleRouter([Rule(_FromHere(), application), Rule(AnyMatches(), refuse)])


class _FromHere(Matcher):
    """Matches requests whose Host, and Origin where they have one, are this machine's loopback."""

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        names = [_name(request.host)]
        if origin := request.headers.get("Origin"):
            names.append(urlsplit(origin).hostname or "")
        return {} if all(map(_is_loopback, names)) else None


def _name(address: str) -> str:
    """Return the host of `host:port`, without the brackets of IPv6."""
    return urlsplit(f"//{address}").hostname or ""


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
