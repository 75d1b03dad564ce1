"""Reaching the hosts: SSH, packing the agent, desired against actual, doctor, bootstrap.

How a line of the hosts file becomes a worker, file by file; what is not named here is a detail:

    hosts.py                   parse_hosts: the line becomes a `Host`
    head/head.py               _start gives it to the fleet
    fleet/fleet.py             add_hosts
    fleet/host_table.py        add: a `FleetHost` for the line
    fleet/host.py              _live, _attempt: reach it, and again when it was lost
    fleet/deploy/opening.py    open_channel: a channel to its agent, which is sent where it is not
    fleet/ssh/connector.py     connect (localhost needs none)
    fleet/session.py           _make_ready: ask for its facts, check them, try the scheduler's port
    fleet/host_record.py       meet: its `Facts` become a `HostCapacity`
    fleet/fleet.py             host_changed: it is ready; reconcile
    fleet/reconcile.py         decide: desired against actual, pure; plan.py makes the `WorkerSpec`
    fleet/worker_actions.py    start: `StartWorkers` to its agent; worker_table.py knows of it

    agent/supervisor.py        _carry_out, on the host
    agent/workers.py           start, _fork
    agent/forkserver.py        _fork, _become_worker
    worker/worker.py           work: it registers with the scheduler
"""
