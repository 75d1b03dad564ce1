"""A pytest plugin: a suite that starts a LocalCluster gets one of the kind that is compared."""

import os

import dask.distributed

from tests.compatibility.standing import own_cluster

if os.environ.get("COMPATIBILITY_CLUSTER") == "GPUCluster":
    dask.distributed.LocalCluster = own_cluster
