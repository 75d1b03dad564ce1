"""`python -m gputui.head.webhook`: posts what comes on stdin, to the URL in its first line.

A process of its own, so that its caller can end it whatever the server does; the URL, which may
be a secret, is in no argument and no message.
"""

import sys
import urllib.error
import urllib.request

SOCKET_S = 10.0


def main() -> int:
    """Post; return 0 for an answer of 2xx, else print why not on stderr."""
    url, _, body = sys.stdin.buffer.read().partition(b"\n")
    headers = {"Content-Type": "application/json", "User-Agent": "gputui"}
    try:
        request = urllib.request.Request(url.decode(), data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=SOCKET_S):
            return 0
    except urllib.error.HTTPError as error:
        print(f"the webhook answered {error.code}", file=sys.stderr)
    except (OSError, ValueError) as error:
        said = getattr(error, "reason", None) or type(error).__name__
        print(f"the webhook could not be reached: {said}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
