"""torch's tensors on Dask's wire, on a stand-in for torch, which this machine need not have."""

import subprocess
import sys

import pytest

TORCH = """
import sys, types
import numpy as np

torch = types.ModuleType("torch")

class Tensor:
    # As torch's: on a device it gives no NumPy array.
    grad = None
    def __init__(self, data, device="cpu", requires_grad=False):
        self.array, self.requires_grad = data, requires_grad
        self.device = types.SimpleNamespace(type=device)
    def detach(self):
        return self
    def cpu(self):
        return Tensor(self.array)
    def numpy(self):
        if self.device.type != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.array
    def requires_grad_(self, wanted):
        self.requires_grad = wanted
        return self
    def numel(self):
        return self.array.size
    def element_size(self):
        return self.array.itemsize

class Parameter(Tensor):
    def __init__(self, data, requires_grad=True):
        super().__init__(data.array, data.device.type, requires_grad)
    def detach(self):
        return Tensor(self.array, self.device.type)

class Module:
    pass

for kind in (Tensor, Parameter, Module):
    kind.__module__ = "torch"
torch.Tensor, torch.tensor, torch.from_numpy = Tensor, Tensor, Tensor
torch.nn = types.SimpleNamespace(Parameter=Parameter, Module=Module)
sys.modules["torch"] = torch
"""

PROGRAM = """
from distributed.protocol.serialize import deserialize, serialize
from gputui.engine import wire

wire.register_torch()
array = np.arange(6.0)
# What arrives first has come from a client without gputui.
inner, frames = serialize(array)
sent = {"sub-header": inner, "requires_grad": False, "device": "cuda"}
first = {"serializer": "dask", "type": "torch.Tensor", "type-serialized": None}
from distributed.protocol.serialize import dask_deserialize
if FIRST == "arrives":
    tensor = dask_deserialize.dispatch(Tensor)(sent, frames)
else:
    tensor = Tensor(array, "cuda")
for value in (tensor, Parameter(tensor)):
    header, frames = serialize(value, serializers=["dask"], on_error="raise")
    again = deserialize(header, frames)
    assert type(again) is type(value)
    assert again.device.type == "cuda"
    assert again.requires_grad is value.requires_grad
    np.testing.assert_array_equal(again.array, array)
print("right")
"""


@pytest.mark.parametrize("first", ["arrives", "leaves"])
def test_a_tensor_on_a_device_leaves_a_process_that_has_got_or_sent_one(first: str) -> None:
    program = f"{TORCH}\nFIRST = {first!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "right\n", done.stderr
