from __future__ import annotations

import errno
from random import Random

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import write_atomic
from tailrace.cluster.storage.statefile import read_state, write_state
from tests.support.fault_files import FaultFiles, PowerLost, on

BODY = {"topic_id": "6f", "log_start": 12, "logs": {"orders-0": [1, 2], "orders-1": []}, "none": {}}


@pytest.fixture
def files() -> FaultFiles:
    return FaultFiles(Random(1))


def sealed(head: bytes, text: bytes) -> bytes:
    return b"%b crc32c=%08x\n%b" % (head, google_crc32c.value(head + b"\n" + text), text)


def test_state_is_readable_by_people_when_written(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 1, BODY)
    lines = files.read("/s").decode().splitlines()
    assert lines[0].startswith("tailrace partition v1 crc32c=")
    assert lines[1:] == [
        "{",
        '"topic_id": "6f",',
        '"log_start": 12,',
        '"logs": {',
        '"orders-0": [1,2],',
        '"orders-1": []',
        "},",
        '"none": {}',
        "}",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4), st.integers(1, 999))
def test_state_comes_back_when_read(body: dict[str, object], version: int) -> None:
    files = FaultFiles(Random(1))
    write_state(files, "/s", "leader-epochs", version, body)
    assert read_state(files, "/s", "leader-epochs", version) == (version, body)


def test_state_raises_file_not_found_when_missing(files: FaultFiles) -> None:
    with pytest.raises(FileNotFoundError):
        read_state(files, "/s", "partition", 1)


def test_state_is_reported_corrupt_when_any_bit_flips(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 1, {"a": 1})
    for position in range(len(files.read("/s"))):
        for bit in range(8):
            files.flip_bit("/s", position, bit)
            with pytest.raises(TailraceError, match=r"^STORAGE_CORRUPT: /s .*Restore") as caught:
                read_state(files, "/s", "partition", 1)
            assert caught.value.code is ErrorCode.STORAGE_CORRUPT
            files.flip_bit("/s", position, bit)
    assert read_state(files, "/s", "partition", 1) == (1, {"a": 1})


def test_state_is_reported_corrupt_when_cut_anywhere(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 1, {"a": 1})
    whole = files.read("/s")
    for size in range(len(whole)):
        write_atomic(files, "/s", whole[:size])
        with pytest.raises(TailraceError) as caught:
            read_state(files, "/s", "partition", 1)
        assert caught.value.code is ErrorCode.STORAGE_CORRUPT


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b'{"a": 1}', "does not begin with the header"),
        (sealed(b"tailrace broker v1", b"{}"), "holds state of kind 'broker' instead of 'partition'"),
        (sealed(b"tailrace partition v1", b"{"), "is not valid JSON"),
        (sealed(b"tailrace partition v1", b"\xff"), "is not valid JSON"),
        (sealed(b"tailrace partition v1", b"[1]"), "holds JSON that is not an object"),
    ],
)
def test_state_is_reported_corrupt_with_remedy_when_foreign(
    files: FaultFiles, content: bytes, problem: str
) -> None:
    write_atomic(files, "/d.json", content)
    with pytest.raises(TailraceError) as caught:
        read_state(files, "/d.json", "partition", 1, remedy="Call the owner.")
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert f"/d.json {problem}" in str(caught.value)
    assert str(caught.value).endswith(" Call the owner.")


def test_state_is_reported_unsupported_when_newer(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 3, {})
    assert read_state(files, "/s", "partition", 4) == (3, {})
    with pytest.raises(
        TailraceError, match=r"/s has version 3 .* up to 2\. Start the newer release"
    ) as caught:
        read_state(files, "/s", "partition", 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("kind", "version"), [("Two Words", 1), ("", 1), ("a", 0), ("a", 10**9)])
def test_state_is_refused_when_header_cannot_hold_it(files: FaultFiles, kind: str, version: int) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        write_state(files, "/s", kind, version, {})
    with pytest.raises(ValueError, match="Out of range float"):
        write_state(files, "/s", "a", 1, {"x": float("nan")})


def test_state_is_old_or_new_when_power_goes_at_any_step() -> None:
    def run(files: FaultFiles) -> None:
        write_state(files, "/s", "partition", 1, {"n": 1})
        for n in (2, 3):
            write_state(files, "/s", "partition", 1, {"n": n, "padding": "x" * 2000})

    rehearsal = FaultFiles(Random(1))
    run(rehearsal)
    seen = set()
    for step in range(1, rehearsal.steps + 1):
        for seed in range(20):
            files = FaultFiles(Random(seed))
            files.crash_after(step)
            with pytest.raises(PowerLost):
                run(files)
            found = files.crash(Random(seed))
            state = read_state(found, "/s", "partition", 1)[1]["n"] if found.exists("/s") else 0
            done = (step - 1) * 3 // rehearsal.steps
            assert state in (done, done + 1), (step, seed)
            seen.add(state)
    assert seen == {0, 1, 2, 3}


def test_state_costs_no_sync_when_told_so(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 1, {}, sync=False)
    assert not files.datasyncs
    assert not files.dir_syncs
    write_state(files, "/s", "partition", 1, {})
    assert files.datasyncs.total() == files.dir_syncs.total() == 1


def test_state_stays_when_its_replacement_fails(files: FaultFiles) -> None:
    write_state(files, "/s", "partition", 1, {"n": 1})
    for call in ("create", "write", "datasync", "rename"):
        files.fail(errno.EIO, on(call))
        with pytest.raises(OSError, match="Input/output error"):
            write_state(files, "/s", "partition", 1, {"n": 2})
        assert read_state(files, "/s", "partition", 1) == (1, {"n": 1})
        assert [entry.name for entry in files.list("/")] == ["s"]
