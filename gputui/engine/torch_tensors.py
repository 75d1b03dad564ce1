"""torch tensors of a GPU as Dask has to know them: how large they are, and how they leave it.

Dask's own way (distributed 2026.8, `distributed.protocol.torch`) calls `Tensor.numpy`, which raises
TypeError for a tensor on a device, and the task that wants it never ends. That module is never
imported here: it would register its own as soon as a first tensor arrives. The headers are those
that it writes and reads, so that either end may be without gputui.
"""

from typing import Any


def register() -> None:
    """Have Dask measure and send torch's tensors so, from the first one in this process on."""
    from dask.sizeof import sizeof
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    sizeof.register_lazy("torch", _register_size)
    for dispatch in (dask_serialize, dask_deserialize):
        for module in ("torch", "torchvision"):
            dispatch.register_lazy(module, _register)


def _register_size() -> None:
    import torch
    from dask.sizeof import sizeof

    sizeof.register(torch.Tensor, lambda tensor: tensor.numel() * tensor.element_size())


def _register() -> None:
    import torch
    from distributed.protocol.serialize import dask_deserialize, dask_serialize, register_generic

    dask_serialize.register(torch.Tensor, _serialize)
    dask_deserialize.register(torch.Tensor, _deserialize)
    dask_serialize.register(torch.nn.Parameter, _serialize_parameter)
    dask_deserialize.register(torch.nn.Parameter, _deserialize_parameter)
    register_generic(torch.nn.Module)


def _serialize(tensor: Any) -> tuple[dict[str, Any], list[Any]]:
    from distributed.protocol.serialize import serialize

    inner, frames = serialize(tensor.detach().cpu().numpy())
    header = {"sub-header": inner, "requires_grad": tensor.requires_grad}
    return header | {"device": tensor.device.type}, frames


def _deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor, on a device if it was on one; with its gradient where Dask sent that."""
    import torch
    from distributed.protocol.serialize import deserialize

    grad, end = header.get("grad"), None
    if grad:
        end = grad["start"]
    array = deserialize(header["sub-header"], frames[:end])
    if header["device"] == "cpu":
        tensor = torch.from_numpy(array)
    else:
        tensor = torch.tensor(array, device=header["device"])
    tensor = tensor.requires_grad_(header["requires_grad"])
    if grad:
        tensor.grad = torch.from_numpy(deserialize(grad["header"], frames[end:]))
    return tensor


def _serialize_parameter(parameter: Any) -> tuple[dict[str, Any], list[Any]]:
    from distributed.protocol.serialize import serialize

    inner, frames = serialize(parameter.detach())
    return {"sub-header": inner, "requires_grad": parameter.requires_grad}, frames


def _deserialize_parameter(header: dict[str, Any], frames: list[Any]) -> Any:
    import torch
    from distributed.protocol.serialize import deserialize

    tensor = deserialize(header["sub-header"], frames)
    return torch.nn.Parameter(data=tensor, requires_grad=header["requires_grad"])
