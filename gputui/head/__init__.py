"""Once per cluster: the door for faces, supervision, events, runs and snapshots.

One light asyncio loop that imports no distributed; the scheduler is its child.
"""
