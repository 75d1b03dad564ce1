"""Made-up input from hosts files, connections, snapshots and records: see `tests/fuzzing`."""

import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.model.snapshot import Snapshot
from gputui.protocol.typed_codec import decode, encode
from tests.fuzzing.seeds import inputs
from tests.fuzzing.shapes import ANYTHING, one_wrong, value_of
from tests.fuzzing.targets import TARGETS, UNIONS

KINDS = [(name, kind) for name, union in UNIONS.items() for kind in typing.get_args(union)]
some = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.mark.parametrize(
    ("connection", "kind"), KINDS, ids=lambda part: getattr(part, "__name__", part)
)
@some
@given(data=st.data())
def test_a_message_arrives_as_it_was_or_is_a_protocol_error(
    connection: str, kind: type, data: st.DataObject
) -> None:
    message = data.draw(value_of(kind))
    assert decode(encode(message), UNIONS[connection]) == message
    TARGETS["messages"](data.draw(one_wrong(message)))


@some
@given(data=st.data())
def test_no_snapshot_that_arrives_breaks_what_reads_it(data: st.DataObject) -> None:
    snapshot = data.draw(value_of(Snapshot))
    assert decode(encode(snapshot), Snapshot) == snapshot
    TARGETS["snapshots"](encode(snapshot))
    TARGETS["snapshots"](data.draw(one_wrong(snapshot)))


HOSTS = st.text("ab[]0-9=,;:# \n*@.gpusnoemry%é\0", max_size=60) | st.text(max_size=60)


@settings(some, max_examples=200)
@given(HOSTS)
def test_a_hosts_file_is_read_or_refused_in_words(text: str) -> None:
    TARGETS["hosts"](text.encode())


@settings(some, max_examples=100)
@given(st.data())
def test_a_record_with_something_wrong_hides_no_other(data: st.DataObject) -> None:
    record = json.loads(data.draw(st.sampled_from(inputs("records"))))
    within = data.draw(st.sampled_from([record, record["result"] or record]))
    within[data.draw(st.sampled_from(sorted(within)))] = data.draw(ANYTHING)
    TARGETS["records"](json.dumps(record).encode())


OPTIONS = (
    "port user hostname identityfile certificatefile proxyjump proxycommand stricthostkeychecking "
    "userknownhostsfile hostkeyalias addressfamily setenv sendenv identityagent connecttimeout"
)
VALUES = "22 -1 ~ %h %% ${X} % ${ yes \0"
WORDS = st.sampled_from((*OPTIONS.split(), *VALUES.split()))


@settings(some, max_examples=200)
@given(st.lists(st.lists(WORDS | st.text(max_size=5), max_size=4).map(" ".join), max_size=8))
def test_whatever_ssh_prints_is_read_or_refused_in_words(lines: list[str]) -> None:
    TARGETS["ssh"]("\n".join(lines).encode())
