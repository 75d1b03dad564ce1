"""The GPUs that the environment leaves to this process: CUDA_VISIBLE_DEVICES, Slurm.

Pure: readings and an environment come in, UUIDs go out. NVML ignores both variables and lists
every GPU; the people who set them mean them.
"""

from collections.abc import Mapping, Sequence

from gputui.model.readings import DeviceReading

SLURM_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
GIVEN = ("CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", *SLURM_VARIABLES)


def selected(
    environ: Mapping[str, str], devices: Sequence[DeviceReading], minors: Mapping[str, int]
) -> frozenset[str]:
    """Return the UUIDs of the devices that the environment selects; all where it says nothing.

    `minors` maps a GPU's label to N of its /dev/nvidiaN, which is what Slurm counts by; a GPU
    without is taken by its index. A GPU that is selected is so with its MIG instances.

    >>> gpus = [DeviceReading("GPU-a", "0", "A100"), DeviceReading("GPU-b", "1", "A100")]
    >>> sorted(selected({}, gpus, {}))
    ['GPU-a', 'GPU-b']
    >>> sorted(selected({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "0"}, gpus, {}))
    ['GPU-b']
    >>> sorted(selected({"SLURM_JOB_GPUS": "0"}, gpus, {"0": 1, "1": 0}))
    ['GPU-b']
    >>> selected({"SLURMD_NODENAME": "a1"}, gpus, {})
    frozenset()
    """
    if of_a_job_without_gpus(environ):
        return frozenset()
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        return visible(value, devices)
    numbers = next(filter(None, (_numbers(environ.get(name, "")) for name in SLURM_VARIABLES)), ())
    gpus = [device for device in devices if not device.is_mig]
    if numbers:
        # Slurm's numbers are those of the device files whatever a device cgroup hides. Source:
        # sbatch(1), SLURM_JOB_GPUS: "global GPU IDs".
        gpus = [each for each in gpus if minors.get(each.label, int(each.label)) in numbers]
    return frozenset(uuid for gpu in gpus for uuid in _with_instances(gpu, devices))


def visible(value: str, devices: Sequence[DeviceReading]) -> frozenset[str]:
    """Return the UUIDs of the devices that a value of CUDA_VISIBLE_DEVICES shows.

    Indices count the GPUs that this process may open, in NVML's order, which is that of
    CUDA_DEVICE_ORDER=PCI_BUS_ID. The first entry that names no device hides itself and all after
    it.
    Source: CUDA C++ Programming Guide, "CUDA Environment Variables".

    >>> gpus = [DeviceReading("GPU-a1", "0", "H200"), DeviceReading("GPU-a2", "1", "H200"),
    ...         DeviceReading("MIG-b1", "1.0", "H200 MIG 1g"), DeviceReading("GPU-c", "2", "H200")]
    >>> sorted(visible("2, 0", gpus))
    ['GPU-a1', 'GPU-c']
    >>> sorted(visible("GPU-c,MIG-b", gpus))
    ['GPU-c', 'MIG-b1']
    >>> sorted(visible("1", gpus))
    ['GPU-a2', 'MIG-b1']
    >>> sorted(visible("0,-1,2", gpus)), sorted(visible("2,GPU-a", gpus))
    (['GPU-a1'], ['GPU-c'])
    >>> visible("", gpus) == visible("-1", gpus) == visible("NoDevFiles", gpus) == frozenset()
    True
    """
    shown: set[str] = set()
    for entry in value.split(","):
        device = _named(entry.strip(), devices)
        if device is None:
            break
        shown.update(_with_instances(device, devices))
    return frozenset(shown)


def of_a_job_without_gpus(environ: Mapping[str, str]) -> bool:
    """Return whether Slurm started this and gave it no GPU, which it says by setting nothing.

    Source: `gres_common_gpu_set_env` in Slurm 22.05 to 26.05.
    """
    return "SLURMD_NODENAME" in environ and not any(name in environ for name in GIVEN)


def ambiguous_order(environ: Mapping[str, str], devices: Sequence[DeviceReading]) -> bool:
    """Return whether CUDA may count the GPUs otherwise than NVML, and an index is used.

    Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA puts the fastest GPU first.

    >>> gpus = [DeviceReading("GPU-a", "0", "T4"), DeviceReading("GPU-b", "1", "A100")]
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "0"}, gpus)
    True
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "GPU-a"}, gpus)
    False
    >>> order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "0"} | order, gpus)
    False
    """
    models = {device.name for device in devices if not device.is_mig}
    entries = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return (
        len(models) > 1
        and any(entry.strip().isdecimal() for entry in entries)
        and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    )


def _named(entry: str, devices: Sequence[DeviceReading]) -> DeviceReading | None:
    """Return the one device that an index or the start of a UUID names."""
    if entry.isdecimal():
        gpus = [device for device in devices if not device.is_mig]
        return next(iter(gpus[int(entry) :]), None)
    found = [device for device in devices if device.uuid.startswith(entry)]
    named = entry.startswith(("GPU-", "MIG-")) and len(found) == 1
    return found[0] if named else None


def _with_instances(device: DeviceReading, devices: Sequence[DeviceReading]) -> list[str]:
    """Return the UUIDs of a device and of the MIG instances on it."""
    on_it = f"{device.label}."
    return [device.uuid, *(other.uuid for other in devices if other.label.startswith(on_it))]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with ranges; nothing where it is no such list.

    >>> _numbers("0,4-6"), _numbers("gpu:2"), _numbers("")
    ((0, 4, 5, 6), (), ())
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)
