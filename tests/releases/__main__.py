"""A head of an earlier release, played from its record."""

import fcntl
import json
import os
import signal
import socket
import sys
from pathlib import Path


def main(release: Path, runtime: Path, **changes: object) -> None:
    """Hold the cluster's name and answer frontends, until SIGTERM."""
    folder = runtime / "gputui"
    folder.mkdir(mode=0o700, exist_ok=True)
    said = json.loads((release / "connection.json").read_text()) | changes
    own = folder / f"{said['cluster_id']}.sock"
    file = (folder / f"{said['name']}.json").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(json.dumps(said | {"pid": os.getpid(), "socket": str(own)}))
    file.flush()

    def end(*_: object) -> None:
        own.unlink()
        Path(file.name).unlink()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    answers = conversation(release)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(own))
        listener.listen()
        print("ready", flush=True)
        while True:
            frontend, _ = listener.accept()
            with frontend, frontend.makefile("rb") as lines:
                if line := lines.readline():
                    version = json.loads(line)[1]
                    frontend.sendall(answers.get(version, answers["other"]).encode())


def conversation(release: Path) -> dict[object, str]:
    """Return what the head answered to each version of a frontend; "other" is not its own."""
    lines = [json.loads(line) for line in (release / "transcript.jsonl").read_text().splitlines()]
    answers: dict[object, str] = {}
    for asked, answered in zip(lines[::2], lines[1::2], strict=True):
        version = json.loads(asked["line"])[1]
        answers[version] = answered["line"]
        if json.loads(answered["line"])[0] == "Refused":
            answers["other"] = answered["line"]
    return answers


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads("".join(sys.argv[3:]) or "{}"))
