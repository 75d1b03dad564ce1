"""An agent in one small script, that plays the faults of a host a real agent does not have.

Packed in place of `gputui.agent`, it does what `env.STANDIN=` tells it, a JSON object: `facts`
to change in the answer, `mute` not to answer at all, `deaf` to say nothing after the facts,
`die` to end after them, `unreachable` to report for the scheduler's port.
"""

import json
import os
import platform
import sys
import threading
import time
from importlib.metadata import version

from gputui.model.readings import DeviceReading, HostReading
from gputui.protocol.agent import (
    MARKER,
    Configure,
    Facts,
    Listen,
    Listening,
    Ping,
    Pong,
    Reach,
    Reached,
    Shutdown,
    Telemetry,
    ToAgent,
)
from gputui.protocol.codec import decode, encode
from gputui.protocol.streams import deflating

deflate = bytes
saying = threading.Lock()
FACTS = {
    "agent_pid": os.getpid(),
    "python": sys.executable,
    "python_version": platform.python_version(),
    "packages": tuple((name, version(name)) for name in ("dask", "distributed", "numpy")),
    "cuda_driver": "",
    "cpus": 2,
    "memory_total_bytes": 2**30,
    "disk_free_bytes": 2**36,
    "devices": (),
    "cuda_visible_devices": None,
    "running": (),
}


def play() -> None:
    os.write(1, MARKER + b"\n")
    configure = decode(sys.stdin.buffer.readline(), Configure)
    global deflate
    deflate = deflating() if configure.compressed else bytes
    wishes = json.loads(dict(configure.env).get("STANDIN", "{}"))
    if wishes.get("mute"):
        sys.stdin.read()
    say(facts(wishes.get("facts", {})))
    if wishes.get("die"):
        raise SystemExit(wishes["die"])
    if not wishes.get("deaf"):
        threading.Thread(target=measure, args=(configure,), daemon=True).start()
    for line in sys.stdin.buffer:
        match decode(line, ToAgent):
            case Shutdown():
                return
            case Ping(number) if not wishes.get("deaf"):
                say(Pong(number))
            case Listen(number):
                say(Listening(number, 0))
            case Reach(number):
                say(Reached(number, wishes.get("unreachable", "")))


def facts(changed: dict) -> Facts:
    packages = {**dict(FACTS["packages"]), **changed.pop("packages", {})}
    devices = tuple(DeviceReading(**device) for device in changed.pop("devices", []))
    present = tuple((name, there) for name, there in packages.items() if there)
    return Facts(**{**FACTS, "packages": present, "devices": devices, **changed})


def measure(configure: Configure) -> None:
    while True:
        say(Telemetry(time.time(), HostReading(), (), ()))
        time.sleep(configure.telemetry_interval_s)


def say(message: object) -> None:
    with saying:
        os.write(1, deflate(encode(message)))


def main() -> int:
    play()
    return 0
