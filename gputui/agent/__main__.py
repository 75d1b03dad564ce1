"""`python -m gputui.agent relay`, or the packed agent's `relay`: the two starts of the agent."""

import sys


def main() -> int:
    """Be the relay of an agent, or the nursery of one."""
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role == "relay":
        from gputui.agent.relay import relay

        return relay()
    if role == "nursery":
        from gputui.agent.nursery import nursery

        return nursery(int(sys.argv[2]))
    print("gputui agent: started by gputui, with relay or nursery", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
