"""torch tensors of a GPU as Dask has to know them: how large they are, and how they leave it.

Dask's own way (distributed 2026.8, `distributed.protocol.torch`) calls `Tensor.numpy`, which raises
TypeError for a tensor on a device, and the task that wants it never ends. The header here is the
one that it writes and reads, so that either end may be without gputui.
"""

from typing import Any


def register() -> None:
    """Have Dask measure and send torch's tensors so, from the first one in this process on."""
    from dask.sizeof import sizeof
    from distributed.protocol.serialize import dask_serialize

    sizeof.register_lazy("torch", _register_size)
    dask_serialize.register_lazy("torch", _register)


def _register_size() -> None:
    import torch
    from dask.sizeof import sizeof

    sizeof.register(torch.Tensor, lambda tensor: tensor.numel() * tensor.element_size())


def _register() -> None:
    import distributed.protocol.torch
    import torch
    from distributed.protocol.serialize import dask_serialize

    on_host = distributed.protocol.torch.serialize_torch_Tensor

    def serialize(tensor: Any) -> tuple[dict[str, Any], list[Any]]:
        header, frames = on_host(tensor.detach().cpu())
        header |= {"device": tensor.device.type, "requires_grad": tensor.requires_grad}
        return header, frames

    dask_serialize.register(torch.Tensor, serialize)
