"""Every message between two processes, once, and the channel that carries them.

`frontend` (screen, `--run`, Python), `agent`, `scheduler`, `starter` and `forkserver` hold the
messages of one connection, named by the peer, and which way each goes (`ToAgent`, `FromAgent`). A
process imports those that it has. `channel` carries them over a byte stream (`streams`), `packets`
over a socket that takes descriptors along; both write and check them by `codec`. How a message
waits for a slow peer is declared on it (`delivery`), and kept to by `outgoing`; what is sent again
and again goes as what changed in it (`deltas`).

Both ends are always the same version: the agent is sent by hash, and a frontend and a head compare
`VERSION` in their first messages.
"""

VERSION = 4
"""Raised with every change of a message."""
