"""torchrun and accelerate as they are, started by `--exec` on three hosts: one world over all."""

import subprocess

import pytest

from tests.sshd import Namespaces
from tests.system.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAIN = """
import os
import torch
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loss = torch.nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5))
loss.backward()
optimizer.step()
total = torch.tensor([1.0 + rank])
torch.distributed.all_reduce(total)
same = [torch.zeros_like(model.module.weight) for _ in range(world)]
torch.distributed.all_gather(same, model.module.weight.data)
assert all(torch.equal(each, same[0]) for each in same)
said = f"trained {rank} {os.environ['LOCAL_RANK']} {world} {int(total)}\\n"
os.write(1, said.encode())  # whole, where processes have one pipe
del model, optimizer, loss
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def trained(done: "subprocess.CompletedProcess[str]") -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(line.partition("trained ")[2] for line in done.stdout.splitlines())


@pytest.fixture
def three(gputui: Command, namespace_hosts: Namespaces) -> Command:
    """The command, and a program; places 3, 1 and 1, on wires that gloo is told the name of."""
    pytest.importorskip("torch")
    gputui.env |= namespace_hosts.environment
    lines = zip(namespace_hosts.hosts, (3, 1, 1), strict=True)
    hosts = [f"{host.name} gpus=none workers={places}\n" for host, places in lines]
    every = '* env.GLOO_SOCKET_IFNAME=eth0 env.RES_OPTIONS="timeout:1 attempts:1"\n'  # no DNS there
    (gputui.folder / "three.txt").write_text("".join([every, *hosts]))
    (gputui.folder / "train.py").write_text(TRAIN)
    return gputui


def test_a_bare_torchrun_is_one_world_over_hosts_of_different_sizes(three: Command) -> None:
    done = three("three.txt", "--exec", "-n", "4", "--", "torchrun", "train.py", timeout_s=200)
    assert trained(done) == ["0 0 4 10", "1 1 4 10", "2 2 4 10", "3 0 4 10"]


def test_one_process_a_place_is_a_world_without_a_launcher(three: Command) -> None:
    words = ("-n", "5", "--per", "gpu", "--", "python", "train.py")
    done = three("three.txt", "--exec", *words, timeout_s=200)
    assert trained(done) == ["0 0 5 15", "1 1 5 15", "2 2 5 15", "3 0 5 15", "4 0 5 15"]


def test_accelerate_is_told_the_same_by_placeholders(three: Command) -> None:
    pytest.importorskip("accelerate")
    words = (
        *("--num_machines={nodes}", "--num_processes={gpus}", "--machine_rank={node_rank}"),
        *("--main_process_ip={master_addr}", "--main_process_port={master_port}", "--multi_gpu"),
    )
    done = three(
        *("three.txt", "--exec", "-n", "3", "--gpus-per-host", "1", "--"),
        *("env", "ACCELERATE_USE_CPU=true", "accelerate", "launch", *words, "train.py"),
        timeout_s=200,
    )
    assert trained(done) == ["0 0 3 6", "1 0 3 6", "2 0 3 6"]
