"""`--run` on this machine and on hosts reached by SSH: the result, and that nothing is left."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sshd import SshHosts
from tests.system.conftest import Command
from tests.system.lab import running_lab

lab = running_lab

SMALL_SVD = ("--run", "svd", "-p", "rows=400", "-p", "cols=20", "-p", "chunk_rows=100")


@pytest.mark.slow
def test_three_hosts_with_addresses_of_their_own_agree_with_this_machine(
    lab: Command, gputui: Command, namespace_hosts: SshHosts, tmp_path: Path
) -> None:
    here = lab.json("--attach", "lab", *SMALL_SVD)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(namespace_hosts.text("gpus=none workers=1"))
    gputui.env |= namespace_hosts.environment
    there = gputui.json(str(hosts), *SMALL_SVD)
    assert len({worker["host"] for worker in there["workers"]}) == 3
    np.testing.assert_allclose(
        there["result"]["singular_values"], here["result"]["singular_values"], rtol=1e-10
    )


@pytest.mark.slow
def test_a_preset_from_a_file_finds_what_lies_beside_it_on_every_host(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    gputui.env |= openssh_hosts.environment
    folder = gputui.folder / "elsewhere"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").touch()
    (folder / "pack" / "deep.py").write_text("def triple(n):\n    return 3 * n\n")
    (folder / "helper.py").write_text("def one_more(n):\n    return n + 1\n")
    (folder / "mine.py").write_text(
        "import helper\n"
        "from gputui.presets import Outcome, Preset\n"
        "def compute(job):\n    from pack.deep import triple\n"
        "    return Outcome({'x': job.results(job.map(helper.one_more, job.results("
        "job.map(triple, [1, 2]))))})\n"
        "PRESET = Preset('mine', 'uses its neighbours', (), compute)\n"
    )
    name = openssh_hosts.hosts[0].name
    found = gputui.json(f"{name} gpus=none workers=1", "--run", "elsewhere/mine.py:PRESET")
    assert found["result"] == {"x": [4, 7]}


ODD_PRESET = """
import numpy as np
from gputui.presets import Figure, Outcome, Parameter, Preset

def compute(job):
    odd = np.float64("nan")
    figure = Figure("line", "odd", x=(0.0, 1.0, 2.0), y=(odd, np.float32(1.0), job["least"]))
    numbers = {"count": np.int64(3), "s": np.ones(3)}
    return Outcome({"worst": odd, "least": job["least"], "all": [odd, 1.0], **numbers}, figure)

PRESET = Preset("odd", "NaN", (Parameter("least", float, 0.0, "any"),), compute, draws=True)
"""


@pytest.mark.slow
def test_numpys_numbers_finite_or_not_are_valid_json_everywhere(lab: Command) -> None:
    (lab.folder / "odd.py").write_text(ODD_PRESET)
    words = ("--run", "odd.py:PRESET", "-p", "least=inf", "--backend", "numpy")
    result = lab.json("--attach", "lab", *words)["result"]
    odd = {"worst": "nan", "least": "inf", "all": ["nan", 1.0]}
    assert result == {**odd, "count": 3, "s": [1.0] * 3}
    drawn = lab("--attach", "lab", *words, "--figure", "-")
    assert (drawn.returncode, "Traceback" in drawn.stderr) == (0, False), drawn.stderr
    for printed in (
        lab("--attach", "lab", *words, "--json"),
        lab("runs", "--json"),
        lab("runs", "show", "last", "--json"),
    ):
        assert printed.returncode == 0, printed.stderr
        assert '"inf"' in printed.stdout
        json.loads(printed.stdout, parse_constant=pytest.fail)
    assert "odd (2 not finite)" in lab("runs", "show", "last").stdout
