"""A computation of your own with futures: one PyTorch task on each worker, no collection at all.

Dask need not know that a function uses a GPU: it runs Python functions, and the resource `GPU`
keeps two of them from one device. Each task measures matrix products and then trains a small
linear model, whose weights are known, until it has found them.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

from gputui.presets import Figure, Job, Library, Machine, Memory, Outcome, Parameter, Preset

KEPT_BYTES = 32 * 2**20  # cuBLAS' workspace on Hopper; on CPUs, freed blocks that malloc keeps
TRAINING_BYTES = 4 * 2**20


def compute(job: Job) -> Outcome:
    """Train on every worker, and compare the models."""
    arguments = (job.backend, job["size"], job["steps"], job["seed"])
    found = job.each_worker(train, *arguments, stage="training")
    names = tuple(worker.name for worker in job.workers)
    workers = [{"worker": name, **each} for name, each in zip(names, found, strict=True)]
    return Outcome(
        {
            "loss": max(each["loss"] for each in found),
            "weight_error": max(each["weight_error"] for each in found),
            "flops_per_s": sum(each["flops_per_s"] for each in found),
            "workers": workers,
        },
        Figure(
            "bar",
            "matrix products in PyTorch",
            "TFLOP/s",
            labels=names,
            y=tuple(each["flops_per_s"] / 1e12 for each in found),
        ),
    )


def train(backend: str, size: int, steps: int, seed: int) -> dict[str, Any]:
    """Return the rate of float32 products, and the loss and weights' error after `steps` steps."""
    import torch

    device = torch.device("cuda" if backend == "cupy" else "cpu")
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(4096, 16, generator=generator, dtype=torch.float64).to(device)
    weights = torch.rand(16, 1, generator=generator, dtype=torch.float64).to(device)
    model = torch.nn.Linear(16, 1, bias=False, dtype=torch.float64, device=device)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20)

    def loss() -> Any:
        optimizer.zero_grad()
        value = torch.nn.functional.mse_loss(model(x), x @ weights)
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss)
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "flops_per_s": _rate(torch, device, size),
        "loss": loss().item(),
        "weight_error": float((model.weight.detach().T - weights).abs().max()),
    }


def _rate(torch: Any, device: Any, size: int) -> float:
    """Return the FLOP/s of a float32 product of this size."""
    a = torch.rand(size, size, device=device)
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    a @ a
    finish()
    started = time.perf_counter()
    for _ in range(3):
        a @ a
    finish()
    return 3 * 2.0 * size**3 / (time.perf_counter() - started)


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    """A matrix and its product, in float32, what libraries keep, and the training."""
    other = KEPT_BYTES + TRAINING_BYTES
    fits = math.isqrt(max(0, machine.smallest_bytes - other) // 8)
    arrays = 2 * 4 * values["size"] ** 2
    return Memory(arrays + min(arrays, KEPT_BYTES) + TRAINING_BYTES, f"use size ≤ {fits:,}")


PRESET = Preset(
    name="torch",
    summary="your own functions with futures: one PyTorch task on each GPU",
    parameters=(
        Parameter("size", int, 8_192, "side of the products", 1_024, minimum=1, maximum=65_536),
        Parameter("steps", int, 20, "of training", minimum=1, maximum=10_000),
        Parameter("seed", int, 0, "of the training data", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    uses_cupy=False,
    requires=(Library("torch", "pip install 'gputui[torch]'"),),
    units={"flops_per_s": "FLOP/s"},
    draws=True,
)
