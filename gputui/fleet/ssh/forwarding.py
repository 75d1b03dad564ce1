"""What an SSH connection forwards to this machine: a Unix socket and TCP ports of the other one."""

import asyncssh

from gputui.fleet.ssh.connection import Connection

LOOPBACK = "127.0.0.1"


async def forward_socket(connection: Connection, path: str, there: str) -> None:
    """Have a Unix socket at `path` here lead to the one at `there`.

    Raises OSError where the server does not forward it, or nothing listens there.
    """
    try:
        _, writer = await connection.ssh.open_unix_connection(there, encoding=None)
        writer.close()
        await connection.ssh.forward_local_path(path, there)
    except asyncssh.Error as error:
        raise OSError(0, f"{there}: {error.reason}") from error


async def forward_port(connection: Connection, host: str, port: int) -> int:
    """Return a port of the loopback address here that leads to a port as the other machine sees it.

    Raises OSError where no port is available.
    """
    listener = await connection.ssh.forward_local_port(LOOPBACK, 0, host, port)
    return int(listener.get_port())


def keep_alive(connection: Connection, interval_s: float, count: int) -> None:
    """Notice a silent connection: it ends after `count` unanswered keepalives."""
    connection.ssh.set_keepalive(interval_s, count)


def is_lost(connection: Connection) -> bool:
    """Whether the connection is closed, by either end."""
    return bool(connection.ssh.is_closed())
