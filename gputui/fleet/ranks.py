"""Environment and arguments of a program's processes: ranks, GPUs, where they meet. Pure.

One process a GPU finds RANK, WORLD_SIZE and the like, as torch.distributed reads them. One a host
finds PET_NNODES and the like, from which torchrun takes its defaults: a bare `torchrun train.py` is
one world over all hosts. Both find the same as GPUTUI_NODES and so on, and `{nodes}` and so on are
replaced in arguments, for accelerate and others.

Source: `torch.distributed.argparse_util` and "Environment variable initialization" of
torch.distributed (PyTorch 2.13).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gputui.model.frozen import frozen
from gputui.model.readings import DeviceReading
from gputui.protocol.programs import Launch, Per, Place, RunPrograms


@frozen
class Share:
    """A host's part of a program: GPUs, or places on its CPUs."""

    host: str
    devices: tuple[DeviceReading, ...]
    places: int
    """How many GPUs, or how many CPU workers its line asks for."""


def processes(
    order: RunPrograms, shares: Sequence[Share], address: str, port: int
) -> dict[Place, Launch]:
    """Return a program's processes, in the order of their ranks; they meet at `address`."""
    found = list(_split(order.per, shares))
    everywhere = {
        "nodes": len(shares),
        "gpus": sum(share.places for share in shares),
        "world_size": len(found),
        "master_addr": address,
        "master_port": port,
    }
    launches = {}
    for rank, (share, devices, own) in enumerate(found):
        values = {name: str(value) for name, value in {**everywhere, **own, "rank": rank}.items()}
        place = Place(
            f"{order.run}/{rank}",
            share.host,
            tuple(device.label for device in devices),
            tuple(device.uuid for device in devices),
        )
        launches[place] = replace(
            order.launch,
            argv=tuple(_filled(word, values) for word in order.launch.argv),
            env=(
                *order.launch.env,
                *_pinned(devices, order.pin_uuid).items(),
                *_torch(order.per, values).items(),
                *((f"GPUTUI_{name.upper()}", text) for name, text in values.items()),
            ),
            has_input=order.launch.has_input and rank == 0,
        )
    return launches


def _split(
    per: Per, shares: Sequence[Share]
) -> Iterator[tuple[Share, tuple[DeviceReading, ...], dict[str, object]]]:
    """Yield the host, the GPUs and the own values of each process."""
    for node, share in enumerate(shares):
        own: dict[str, object] = {"node_rank": node, "gpus_here": share.places}
        if per is not Per.GPU:
            yield share, share.devices, own | {"local_rank": 0}
            continue
        for local in range(share.places):
            yield share, share.devices[local : local + 1], own | {"local_rank": local}


def _filled(word: str, values: Mapping[str, str]) -> str:
    """Replace the names of values in braces, and leave other braces and a shell's `${}` alone.

    >>> _filled("--rank={rank} {x} ${rank}", {"rank": "3"})
    '--rank=3 {x} ${rank}'
    """
    return re.sub(r"(?<!\$)\{(\w+)\}", lambda match: values.get(match[1], match[0]), word)


def _pinned(devices: Sequence[DeviceReading], by_uuid: bool) -> dict[str, str]:
    """Return variables that show CUDA these devices only; programs call `int()` on an index."""
    if not devices:
        return {}
    by_uuid = by_uuid or any(device.is_mig for device in devices)
    names = [device.uuid if by_uuid else device.label for device in devices]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _torch(per: Per, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that torch.distributed, or torchrun, reads."""
    if per is Per.GPU:
        names = ("rank", "local_rank", "world_size", "master_addr", "master_port")
        found = {name.upper(): values[name] for name in names}
        return found | {"LOCAL_WORLD_SIZE": values["gpus_here"]}
    found = {f"PET_{n.upper()}": values[n] for n in ("node_rank", "master_addr", "master_port")}
    return found | {"PET_NNODES": values["nodes"], "PET_NPROC_PER_NODE": values["gpus_here"]}
