"""Every message between two processes, once, and the channel that carries them.

`frontend` (screen, `--run`, Python), `agent`, `scheduler`, `starter` and `forking` hold the
messages of one connection, and which way each goes (`ToAgent`, `FromAgent`); `shared` has those of
several. Each process imports the messages of its own connections. `channel` carries them over a
byte stream (`streams`), compressed where it leaves the machine. Heads and frontends
write and check them by `typed_codec`, agents by `codec`, in one form. How a message waits for a
slow peer is declared on it (`delivery`).

Both ends are always the same version: the agent is sent by hash, and a frontend and a head compare
`VERSION` in their first messages.
"""

VERSION = 8
"""Raised with every change of a message."""
