"""A host that lies, in one script: a test writes it to a file and names that with `python=`.

The name of the file is the lie: a function here, or what is said once. All that the head sends is
recorded in `NAME.heard` next to the file; the script ends when the head hangs up or says so.
"""

import json
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from pathlib import Path

from gputui.fleet.deploy.remote import GREETING
from gputui.model.readings import DeviceReading, HostReading
from gputui.protocol.agent import (
    MARKER,
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
    Trouble,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import LogLines
from gputui.protocol.streams import deflating
from gputui.protocol.typed_codec import decode, encode

MIB = 2**20
NAME = "ssh2"
OTHERS_WORKER = "ssh1:cpu0"
OTHERS_GPU = DeviceReading("GPU-of-another", "0", "H200")
OWN_GPU = DeviceReading("GPU-of-its-own", "0", "H200")

heard: "queue.Queue[bytes]" = queue.Queue()
writing = threading.Lock()
deflate: Callable[[bytes], bytes] = bytes


def an_honest_host() -> None:
    start_agent(OTHERS_GPU)
    while True:
        say(telemetry(OTHERS_GPU))
        time.sleep(1)


def a_line_of_40_mb_before_the_greeting() -> None:
    for _ in range(40):
        write(b"x" * MIB)


def lines_without_end_before_the_greeting() -> None:
    while True:
        write(b"Welcome!\n" * 1000)


def a_greeting_that_is_no_json() -> None:
    write(GREETING + b" " + nonce() + b" {\n")


def a_greeting_that_is_nested_deeply() -> None:
    write(GREETING + b" " + nonce() + b" " + b"[" * 500_000 + b"\n")


def last_lines_of_20_mib() -> None:
    for _ in range(20):
        write(b"\xff" * (MIB - 1) + b"\n")
    os._exit(1)


def an_old_python() -> None:
    greet(version="3.6.9")


def a_clock_of_another_day() -> None:
    greet(time=time.time() + 3 * 86400)
    write(MARKER + b"\n")


def an_old_dask() -> None:
    start_agent(OWN_GPU, dask="2020.1")


def telemetry_of_63_mib() -> None:
    become_ready()
    write(b'["Telemetry",{"at":[')
    for _ in range(63):
        write(b"1," * (MIB // 2))


def facts_without_end() -> None:
    become_ready()
    for number in count():
        say(facts(*[replace(gpu, uuid=f"{gpu.uuid} {number}") for gpu in gpus(500)]))


def events_without_end() -> None:
    become_ready()
    for number in count():
        say(Trouble(f"trouble {number} {'x' * 1000}"))


def long_events_without_end() -> None:
    become_ready()
    while True:
        say(Trouble("trouble " * 2_000))
        time.sleep(1 / 90)


def log_lines_without_end() -> None:
    become_ready()
    while True:
        say(LogLines(f"{NAME}:gpu0", ("x" * 100,) * 100, time.time()))


def telemetry_without_end() -> None:
    become_ready()
    line = encode(telemetry(*gpus(500)))
    while True:
        write(line)


def gpus(number: int) -> list[DeviceReading]:
    return [DeviceReading(f"{OWN_GPU.uuid}-{label}", str(label), "H200") for label in range(number)]


def errors_without_end() -> None:
    become_ready()
    while True:
        os.write(2, b"x" * MIB)


def nonce() -> bytes:
    found: str = json.loads(until(b'"nonce": '))["nonce"]
    return found.encode()


def greet(**changed: object) -> None:
    told = {
        "python": sys.executable,
        "version": platform.python_version(),
        "send": False,
        "address": "",
        "client": "",
        "time": time.time(),
        **changed,
    }
    write(b" ".join((GREETING, nonce(), json.dumps(told).encode())) + b"\n")


def start_agent(*devices: DeviceReading, **packages: str) -> None:
    greet()
    write(MARKER + b"\n")
    global deflate
    configure = decode(until(b'["Configure"'), ToAgent)
    deflate = deflating() if configure.compressed else bytes
    say(facts(*devices, **packages))


def become_ready() -> None:
    start_agent(OWN_GPU)
    until(b'["Credentials"')


def facts(*devices: DeviceReading, **packages: str) -> Facts:
    there = {name: version(name) for name in ("dask", "distributed", "numpy")}
    return Facts(
        agent_pid=os.getpid(),
        python=sys.executable,
        python_version=platform.python_version(),
        packages=tuple({**there, "cupy-cuda13x": "14", **packages}.items()),
        cuda_driver="13.0",
        cpus=1,
        memory_total_bytes=2**30,
        disk_free_bytes=2**36,
        devices=devices,
        cuda_visible_devices=None,
        running=(),
    )


def telemetry(*devices: DeviceReading) -> Telemetry:
    return Telemetry(time.time(), HostReading(), devices, ())


def say(message: object) -> None:
    write(encode(message))


def write(data: bytes) -> None:
    with writing:
        data = deflate(data)
        while data:
            data = data[os.write(1, data) :]


def until(mark: bytes) -> bytes:
    """Return the next line with a mark that the head sends."""
    while mark not in (line := heard.get()):
        continue
    return line


def listen() -> None:
    """Record and pass on what the head sends; answer what every agent answers at once."""
    with Path(f"{sys.argv[0]}.heard").open("ab", buffering=0) as record:
        for line in sys.stdin.buffer:
            record.write(line)
            heard.put(line)
            if line.startswith((b'["Ping"', b'["Reach"', b'["Listen"', b'["Shutdown"')):
                match decode(line, ToAgent):
                    case Ping(number):
                        say(Pong(number))
                    case Listen(number):
                        say(Listening(number, 0))
                    case Reach(number):
                        say(Reached(number, ""))
                    case Shutdown():
                        break
    os._exit(0)


SAID_ONCE: dict[str, Callable[[], object]] = {
    "the_end_of_a_worker_of_another_host": lambda: WorkerExited(
        OTHERS_WORKER, "crashed", "so it says", None, True
    ),
    "readings_of_a_worker_of_another_host": lambda: replace(
        telemetry(OWN_GPU), workers=(WorkerReading(OTHERS_WORKER),)
    ),
    "readings_of_a_gpu_of_another_host": lambda: telemetry(OTHERS_GPU),
    "a_gpu_of_another_host_in_later_facts": lambda: facts(OTHERS_GPU),
    "cpus_without_number_in_later_facts": lambda: replace(facts(OWN_GPU), cpus=10**15),
    "an_old_python_in_later_facts": lambda: replace(facts(OWN_GPU), python_version="3.6.9"),
    "restarts_without_number": lambda: replace(
        facts(OWN_GPU), running=(WorkerStarted(f"{NAME}:gpu0", 1, 10**15),)
    ),
    "an_absurd_reading": lambda: telemetry(replace(OWN_GPU, utilization_percent=-166_666.0)),
    "an_address_of_a_mebibyte": lambda: WorkerReady(f"{NAME}:gpu0", "x" * (MIB - 1000), None),
    "one_gpu_twice": lambda: telemetry(OWN_GPU, OWN_GPU),
    "thousands_of_gpus": lambda: telemetry(*gpus(1000)),
}
"""The lie → the message of a host that was accepted."""


def play(name: str) -> None:
    if name in SAID_ONCE:
        become_ready()
        say(SAID_ONCE[name]())
    else:
        globals()[name]()


if __name__ == "__main__":
    listener = threading.Thread(target=listen)
    listener.start()
    play(Path(sys.argv[0]).name)
    listener.join()
