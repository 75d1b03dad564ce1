"""Every message on the links of a cluster, once; each link is a module, named by the head's peer.

`frontend` (screen, `--run`, Python), `agent`, `scheduler` and `starter` hold the messages of one
link and which way each goes (`ToAgent`, `FromAgent`); `codec` carries them. A process imports the
links that it has. Both ends are always the same version: the agent is sent by hash, and a frontend
and a head compare `VERSION` in their first messages.
"""

VERSION = 2
"""Raised with every change of a message."""
