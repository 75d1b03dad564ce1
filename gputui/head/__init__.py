"""Once per cluster: the server for frontends, supervision, events, runs and snapshots.

One light asyncio loop that imports no distributed; the scheduler is its child.
"""
