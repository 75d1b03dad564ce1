"""`python -m gputui.agent relay`, or the packed agent's `relay`: the two starts of the agent."""

import sys
from pathlib import Path


def main() -> int:
    """Run as an agent's relay, or as its forkserver."""
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role == "relay":
        from gputui.agent.relay import relay

        return relay()
    if role == "forkserver":
        from gputui.agent.agent_socket import AgentSocket
        from gputui.agent.forkserver import forkserver

        control, scratch, agent_socket = sys.argv[2:5]
        forkserver(int(control), Path(scratch), AgentSocket(Path(agent_socket)))
    print("gputui agent: started by gputui, with relay or forkserver", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
