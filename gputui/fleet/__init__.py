"""Reaching the hosts: SSH, packing the agent, desired against actual, doctor, bootstrap.

A line of the hosts file becomes a worker so, file by file:

    model/hosts.py             parse_hosts: text → hosts
    fleet/fleet.py             Fleet.add_hosts
    fleet/host.py              FleetHost: keep an agent there, attempt after attempt
    fleet/deploy/start_agent.py    AgentOpener.open, by fleet/ssh or fleet/slurm: start a relay
    fleet/session.py           AgentSession: read it and keep its lease
    fleet/host.py              FleetHost._make_ready: facts, checks
    fleet/reachability.py      Ways.find: who reaches whom; fleet/tunnel.py where only SSH is open
    fleet/desired.py           decide: what is to start
    fleet/worker_table.py      WorkerTable.start: tell the agent
    agent/supervisor.py        take the order
    agent/workers.py           have the forkserver fork
    agent/forkserver.py        become the worker
    worker/worker.py           work
"""
