"""Other people's code on a GPUCluster and on a LocalCluster, next to each other.

`python -m tests.compatibility` runs every suite on a standing cluster of each and writes
RESULTS.md; the tests in this folder are the short part that runs with all others.
"""
