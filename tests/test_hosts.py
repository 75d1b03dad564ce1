"""The grammar of hosts.txt."""

import time

import pytest

from gputui.errors import HostsError
from gputui.model.hosts import Host, parse_hosts

EXAMPLE = """\
*  python=/opt/env/bin/python
localhost                                # no SSH
gpu-a
alice@gpu-b:2222 gpus=0,2-3              # by NVML index
gpu[01-16] workers-per-gpu=2 memory=64GiB env.NCCL_DEBUG=INFO
gpu-c gpus=MIG-3f0c,GPU-91aa
cpu-a gpus=none workers=4 nthreads=8
"""


def named(text: str) -> dict[str, Host]:
    return {host.name: host for host in parse_hosts(text)}


def test_the_example_of_the_design_is_read() -> None:
    hosts = named(EXAMPLE)
    assert len(hosts) == 21
    assert hosts["gpu-b"].user == "alice"
    assert (hosts["gpu-b"].port, hosts["gpu-b"].gpus) == (2222, ("0", "2", "3"))
    assert hosts["gpu07"].memory_bytes == 64 * 2**30
    assert hosts["gpu07"].env == (("NCCL_DEBUG", "INFO"),)
    assert hosts["gpu-c"].gpus == ("MIG-3f0c", "GPU-91aa")
    assert (hosts["cpu-a"].gpus, hosts["cpu-a"].workers, hosts["cpu-a"].nthreads) == ((), 4, 8)


def test_defaults_hold_for_the_lines_after_them_only() -> None:
    hosts = named("a\n* nthreads=2\nb\nc nthreads=3")
    assert [hosts[name].nthreads for name in "abc"] == [None, 2, 3]


def test_every_bad_line_is_reported_at_once() -> None:
    with pytest.raises(HostsError) as caught:
        parse_hosts("a gpu=0\nok\nb memory=much\nc:99999", "hosts.txt")
    said = [problem[:12] for problem in caught.value.problems]
    assert said == ["hosts.txt:1:", "hosts.txt:3:", "hosts.txt:4:"]
    assert "did you mean 'gpus'?" in caught.value.problems[0]


def test_a_host_named_twice_is_an_error_of_the_second_line() -> None:
    with pytest.raises(HostsError, match="hosts:3: host 'a02' is already named on line 1"):
        parse_hosts("a[01-03]\nb\na02")


def test_localhost_with_a_user_or_a_port_is_reached_by_ssh() -> None:
    assert named("localhost")["localhost"].is_local
    assert not named("me@localhost")["localhost"].is_local
    assert not named("localhost:2222")["localhost"].is_local


def test_digits_in_front_of_a_range_are_no_part_of_it() -> None:
    assert list(named("node7[8-11]")) == ["node78", "node79", "node710", "node711"]
    assert len(named(f"x{'7' * 80}[0-390]")) == 391


@pytest.mark.parametrize(
    "text",
    [
        *("fe80::1", "[2001:db8::2]:22", "u@[::1]:2200", "10.0.0.7:22", "rechner-süd"),
        *("_gpu", "gpu-a-", "me@corp@host", r"CORP\me@host", "user.name+x@h"),
    ],
)
def test_addresses_and_names_that_ssh_takes_are_hosts(text: str) -> None:
    assert len(parse_hosts(text)) == 1


def test_crlf_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    assert list(named("\ufeffa gpus=0\r\nb\r\n")) == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        *("a;rm", "$(x)", "`x`", "-oProxyCommand=x", "a b", "a gpus=", "a gpus=3-1"),
        *("a gpus=0,0", "a:", "a:0", "a env.=1", "a env.1X=1", "a workers=0", "x[1-"),
        *("x[1-99999999]", "@a", "a/b", "a python=", "\x00\x01", "*nthreads=2"),
    ],
)
def test_what_is_no_host_line_is_named_with_its_number(line: str) -> None:
    with pytest.raises(HostsError) as caught:
        parse_hosts(f"good\n{line}", "f")
    assert all(problem.startswith("f:2: ") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a, b", "'a, b': no spaces around commas"),
        ("a ,b", "'a ,b': no spaces around commas"),
        ("a b c", "other hosts stand on lines of their own, or behind a comma: a,b"),
        ("a gpus=0, 1", "'gpus=0,': no spaces around commas"),
        ("a gpus = 0", "'gpus': no spaces around ="),
        ("gpu-a -p 2222", "'-p' is an option of ssh: write user@host:port"),
        ("a setup='module load cuda'", 'write double quotes: setup="…"'),
        ('a setup="module load', "the quote is not closed"),
        ("http://gpu-a:80/x", "is the address of a page: write the host, gpu-a"),
        ("mine:PRESET", "a preset is run by --run mine.py:PRESET"),
        ("a workers=4", "add gpus=none, gpus=all for both kinds, or write workers-per-gpu=4"),
        ("a gpus=none workers-per-gpu=2", "write workers="),
        ("a gpus=0 memory=1GiB gpus=1", "gpus= is given twice"),
        ("a env.X=1 env.X=2", "env.X= is given twice"),
    ],
)
def test_a_line_that_is_nearly_right_is_refused_in_one_sentence(line: str, says: str) -> None:
    with pytest.raises(HostsError) as caught:
        parse_hosts(line, "f")
    (problem,) = caught.value.problems
    assert says in problem


def test_a_host_gives_workers_of_both_kinds_where_its_line_names_both() -> None:
    hosts = named("* gpus=0,1\na workers=4\nb gpus=all workers=2\n* gpus=all\nc workers=3")
    assert (hosts["a"].gpus, hosts["a"].workers) == (("0", "1"), 4)
    assert (hosts["b"].gpus, hosts["b"].workers) == (None, 2)
    assert (hosts["c"].gpus, hosts["c"].workers) == (None, 3)


def test_defaults_of_other_hosts_do_no_harm() -> None:
    hosts = named("* gpus=none\n* workers-per-gpu=2\na\nb gpus=none workers=3")
    assert (hosts["a"].workers_per_gpu, hosts["b"].workers) == (2, 3)


@pytest.mark.parametrize(
    "text",
    [
        f"a[1-{'9' * 5000}]",
        f"a memory={'9' * 400}",
        f"a memory={'9' * 15}TiB",
        "a[1-2000000]",
        "a[1-5000]\nb[1-5001]",
        "a[1-100][1-101]",
        f"a[{','.join('1-9999' for _ in range(9999))}]",
        "a" + "[1-2]" * 5000,
        "a gpus=" + ",".join(["0"] * 50_000),
        "x" * 2**20 + "x",
        "," * 100_000 + "!",
        "[" * 100_000,
        "a " + "=" * 100_000,
        'a "' * 50_000,
        "a " + "b" * 500_000 + "=1",
        "\n".join(f"a{number} x" for number in range(100_000)),
    ],
    ids=range(16),
)
def test_a_text_of_absurd_size_is_refused_at_once_in_words(text: str) -> None:
    before = time.process_time()
    with pytest.raises(HostsError) as caught:
        parse_hosts(text)
    assert time.process_time() - before < 2
    assert len(str(caught.value)) < 20_000


def test_ten_thousand_hosts_are_read() -> None:
    assert len(parse_hosts("gpu[00001-10000]")) == 10_000


def test_a_file_of_another_kind_is_refused_in_a_few_lines() -> None:
    with pytest.raises(HostsError) as caught:
        parse_hosts("\n".join(f"import a{number} as b" for number in range(200)))
    assert len(caught.value.problems) <= 21
    assert "180 more" in caught.value.problems[-1]


def test_a_text_without_hosts_says_what_to_write() -> None:
    with pytest.raises(HostsError, match="names no host; write one a line"):
        parse_hosts("# nothing\n\n")


def test_a_line_may_ask_for_free_gpus() -> None:
    first, second = parse_hosts("* gpus=free:2\na\nb gpus=0")
    assert (first.gpus, first.free_gpus) == (None, 2)
    assert (second.gpus, second.free_gpus) == (("0",), 0)
    assert parse_hosts("* gpus=free:1\na workers=2")[0].workers == 2
    with pytest.raises(HostsError, match="gpus='free:0': write a whole number"):
        parse_hosts("a gpus=free:0")
