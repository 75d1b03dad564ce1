"""Reaching the hosts: SSH, packing the agent, desired against actual, doctor, bootstrap.

How a line of the hosts file becomes a worker, step by step; further in stands what a step asks for
and waits for. `tests/fleet/test_path.py` says what counts as a step, and holds all to the code:

    head/head.py               Head.__init__
    hosts.py                   parse_hosts
    head/head.py               Head.run, Head._start
    fleet/fleet.py             Fleet.add_hosts
    fleet/host.py              FleetHost.__init__, FleetHost.start, FleetHost._live
    fleet/host.py              FleetHost._attempt
        fleet/deploy/opening.py    AgentOpener.open
        fleet/ssh/connector.py     Connector.connect
        fleet/deploy/opening.py    _start_relay
    fleet/session.py           AgentSession.attend, AgentSession._make_ready
        fleet/session.py           AgentSession._probe
        agent/supervisor.py        Supervisor._carry_out, Supervisor._tell_facts
        agent/facts.py             gather_facts
        fleet/session.py           AgentSession._take
        fleet/host_record.py       HostRecord.meet
        fleet/session.py           AgentSession._check
        agent/supervisor.py        Supervisor._try_port
    fleet/host_record.py       HostRecord.become
    fleet/fleet.py             Fleet.host_changed, Fleet._reconcile_soon, Fleet.reconcile
    fleet/reconcile.py         decide
    fleet/worker_actions.py    WorkerActions.start
    agent/supervisor.py        Supervisor._carry_out
    agent/workers.py           Workers.start, Workers._fork
    agent/forkserver.py        Forkserver._take_order, Forkserver._fork, Forkserver._become_worker
    worker/worker.py           work
"""
