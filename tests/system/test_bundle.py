"""A bundle of a real cluster on which secrets were planted wherever people leave them."""

import tarfile
from pathlib import Path

import pytest

from tests.system.conftest import Command, wait_until

OF_HOST = "planted-in-the-hosts-file"
OF_PARAMETER = "planted-as-a-parameter"
OF_SHELL = "planted-in-my-environment"
OF_LOG = "hf_PlantedInALogLine0123456789"
OF_DIAGNOSIS = "planted-in-an-error"
LEAKS = f"""
import os, time
from pathlib import Path
from gputui.presets import Outcome, Parameter, Preset

def leak(password):
    print("token {OF_LOG}, and the hosts file's", os.environ["DB_PASSWORD"], flush=True)
    print("password:", password, "and alone", password, flush=True)
    print(f"API_KEY={OF_DIAGNOSIS}", flush=True)
    time.sleep(600)

def compute(job):
    return Outcome({{"none": job.results([job.submit(leak, job["password"])])}})

PRESET = Preset("leaks", "prints secrets", (Parameter("password", str, "", ""),), compute)
"""


@pytest.mark.slow
def test_a_bundle_of_a_real_cluster_has_stacks_and_none_of_the_planted_secrets(
    gputui: Command,
) -> None:
    home = gputui.folder / "home" / "ann"
    home.mkdir(parents=True)
    preset = home / "mine.py"
    preset.write_text(LEAKS)
    gputui.env["MY_SETTING"] = OF_SHELL
    hosts = f"localhost gpus=none workers=1 nthreads=1 env.DB_PASSWORD={OF_HOST}"
    assert gputui("up", hosts, "--name", "lab").returncode == 0
    run = gputui.start(
        *("--attach", "lab", "--run", f"{preset}:PRESET", "-p", f"password={OF_PARAMETER}")
    )
    shown: list[str] = []

    def stacks() -> bool:
        gputui.ok("why", "--bundle", "b.tar.gz", "--json")
        shown[:] = texts(gputui.folder / "b.tar.gz")
        return any("mine.py" in each and "leak" in each for each in shown)

    wait_until(stacks)
    everything = "\n".join(shown)
    for secret in (OF_HOST, OF_PARAMETER, OF_SHELL, OF_LOG, OF_DIAGNOSIS, "/ann/", "/root"):
        at = everything.find(secret)
        assert at < 0, everything[max(0, at - 200) : at + 200]
    run.kill()
    assert gputui("down").returncode == 0


def texts(path: Path) -> list[str]:
    with tarfile.open(path) as bundle:
        files = [bundle.extractfile(each) for each in bundle]
        return [file.read().decode() for file in files if file]
