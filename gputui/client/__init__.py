"""A frontend's hold on a cluster: start or find its head, attach, scale, run, stop.

Only `gpucluster`, `running` and `keywords` import distributed.
"""
