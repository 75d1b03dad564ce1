"""`python -m gputui.agent relay`, or the packed agent's `relay`: the starts of the agent."""

import os
import sys


def main() -> None:
    """Run as an agent's relay, as its forkserver, or as the parent of a program.

    Python's own finalization is skipped: it takes 10 to 20 ms, and others wait for this end.
    """
    status = _run()
    sys.stderr.flush()
    os._exit(status)


def _run() -> int:
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role == "relay":
        from gputui.process.lifetime import look_rarely

        look_rarely()
        from gputui.agent.relay import relay

        return relay()
    if role == "forkserver":
        from pathlib import Path

        from gputui.agent.agent_socket import AgentSocket
        from gputui.agent.forkserver import forkserver

        control, scratch, agent_socket = sys.argv[2:5]
        forkserver(int(control), Path(scratch), AgentSocket(Path(agent_socket)))
    if role == "program":
        from gputui.agent.program_parent import run_program

        agent, terminal, *argv = sys.argv[2:]
        return run_program(int(agent), terminal == "terminal", argv)
    print("gputui agent: started by gputui, with relay, forkserver or program", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
