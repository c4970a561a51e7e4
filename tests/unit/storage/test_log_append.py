"""Appending: what a leader and a follower take, what they refuse, and that a refusal leaves no trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import encode_marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.storage.log import Log
from tests.support.driving import check_invariants, killed, numbered, offsets_of, restart, state_of
from tests.support.engine import START_MS, Engine, append, batch_of, end_transaction, values_of
from tests.vectors.forge import forge


def flipped(batch: bytes, position: int) -> bytes:
    data = bytearray(batch)
    data[position] ^= 1
    return bytes(data)


def hour_ahead() -> bytes:
    return batch_of(b"v", timestamp=START_MS + 3_600_001)


def with_hole() -> bytes:
    return encode_batch(values=[b"a", b"b"], timestamps=START_MS, offset_deltas=[0, 2], last_offset_delta=2)


REFUSED: dict[str, tuple[Callable[[], bytes], ErrorCode, TopicConfig]] = {
    "oversize": (
        lambda: batch_of(b"x" * 600),
        ErrorCode.RECORD_TOO_LARGE,
        TopicConfig(max_message_bytes=600),
    ),
    "flipped payload": (lambda: flipped(batch_of(b"value"), 95), ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "flipped header": (lambda: flipped(batch_of(b"value"), 9), ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "cut off": (lambda: batch_of(b"value")[:-1], ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "empty": (lambda: b"", ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "trailing bytes": (lambda: batch_of(b"value") + b"\0", ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "two batches": (lambda: batch_of(b"a") + batch_of(b"b"), ErrorCode.CORRUPT_BATCH, TopicConfig()),
    "unknown codec": (lambda: forge(attributes=9), ErrorCode.UNKNOWN_CODEC, TopicConfig()),
    "newer version": (lambda: forge(version=2), ErrorCode.UNSUPPORTED_VERSION, TopicConfig()),
    "control batch": (
        lambda: encode_marker(commit=True, producers=[(1, 0)], coordinator_epoch=0, timestamp=START_MS),
        ErrorCode.INVALID_RECORD,
        TopicConfig(),
    ),
    "no records": (
        lambda: forge(record_count=0, base_timestamp=START_MS),
        ErrorCode.INVALID_RECORD,
        TopicConfig(),
    ),
    "hole in the offsets": (with_hole, ErrorCode.INVALID_RECORD, TopicConfig()),
    "delete horizon": (
        lambda: encode_batch(values=[b"v"], timestamps=START_MS, delete_horizon=5),
        ErrorCode.INVALID_RECORD,
        TopicConfig(),
    ),
    "transaction without producer": (
        lambda: batch_of(b"v", transactional=True),
        ErrorCode.INVALID_RECORD,
        TopicConfig(),
    ),
    "no key in a compacted topic": (
        lambda: batch_of(b"a", b"b", keys=[b"k", None]),
        ErrorCode.RECORD_WITHOUT_KEY,
        TopicConfig(cleanup_policy=("compact",)),
    ),
    "no keys at all in a compacted topic": (
        lambda: batch_of(b"a"),
        ErrorCode.RECORD_WITHOUT_KEY,
        TopicConfig(cleanup_policy=("compact", "delete")),
    ),
    "future": (hour_ahead, ErrorCode.INVALID_TIMESTAMP, TopicConfig()),
    "past": (
        lambda: batch_of(b"v", timestamp=START_MS - 11),
        ErrorCode.INVALID_TIMESTAMP,
        TopicConfig(message_timestamp_before_max_ms=10),
    ),
    "sequence gap": (
        lambda: batch_of(b"v", producer=(1, 0, 5)),
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        TopicConfig(),
    ),
    "old producer epoch": (
        lambda: batch_of(b"v", producer=(2, 1, 1)),
        ErrorCode.INVALID_PRODUCER_EPOCH,
        TopicConfig(),
    ),
    "unknown producer in the middle": (
        lambda: batch_of(b"v", producer=(99, 0, 3)),
        ErrorCode.UNKNOWN_PRODUCER_ID,
        TopicConfig(),
    ),
    "block that is no gzip, to be recompressed": (
        lambda: forge({4: (0, 1, b""), 13: (0, 1, b"v")}, attributes=1, block=b"not gzip"),
        ErrorCode.CORRUPT_BATCH,
        TopicConfig(compression_type="zstd"),
    ),
}


def prepared(topic: TopicConfig) -> tuple[Engine, Log]:
    """A log with two producers, in leader epoch 3."""
    engine = Engine(topic=topic)
    log = engine.log()
    for number, producer in enumerate([(1, 0, 0), (1, 0, 1), (2, 2, 0)]):
        batch = batch_of(b"v%d" % number, keys=[b"k"], producer=producer)
        log.append_as_leader(batch, leader_epoch=3, now_ms=START_MS)
    engine.drain()
    return engine, log


@pytest.mark.parametrize("name", REFUSED)
def test_leader_leaves_no_trace_when_batch_is_refused(name: str) -> None:
    make, code, topic = REFUSED[name]
    engine, log = prepared(topic)
    before, records = state_of(log), values_of(log)
    files_before = engine.files.list(log.directory)
    with pytest.raises(TailraceError) as refusal:
        log.append_as_leader(make(), leader_epoch=3, now_ms=START_MS)
    engine.drain()
    assert refusal.value.code is code
    assert state_of(log) == before
    assert values_of(log) == records
    assert engine.files.list(log.directory) == files_before
    after = log.append_as_leader(
        batch_of(b"next", keys=[b"k"], producer=(1, 0, 2)), leader_epoch=3, now_ms=START_MS
    )
    engine.drain()
    assert (after.base_offset, log.durable_end) == (3, 4)
    again = killed(engine)
    assert values_of(again.log()) == [*records, (3, b"next")]


def test_leader_refuses_append_when_its_epoch_is_older_than_the_log() -> None:
    engine, log = prepared(TopicConfig())
    before = state_of(log)
    with pytest.raises(TailraceError) as refusal:
        append(log, b"late", epoch=2)
    assert refusal.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert state_of(log) == before
    assert append(log, b"new", epoch=4).base_offset == 3
    engine.drain()
    assert [tuple(entry) for entry in log.epochs.entries()] == [(3, 0), (4, 3)]


@pytest.mark.parametrize("between", ["nothing", "restart", "kill"])
def test_leader_answers_with_original_offsets_when_batch_comes_again(between: str) -> None:
    engine, log = prepared(TopicConfig(message_timestamp_type="LogAppendTime"))
    if between != "nothing":
        engine = restart(engine) if between == "restart" else killed(engine)
        log = engine.log()
    end = log.end_offset
    repeated = append(log, b"v1", keys=[b"k"], producer=(1, 0, 1), epoch=3, now_ms=START_MS + 50)
    assert repeated == (1, 1, START_MS, True)
    assert log.end_offset == end
    assert log.home.writer.pending_bytes == 0


def test_leader_refuses_duplicate_when_it_is_older_than_the_last_five() -> None:
    engine = Engine()
    log = engine.log()
    for sequence in range(7):
        append(log, b"v", producer=(1, 0, sequence))
    with pytest.raises(TailraceError) as refusal:
        append(log, b"v", producer=(1, 0, 0))
    assert refusal.value.code is ErrorCode.DUPLICATE_SEQUENCE
    assert append(log, b"v", producer=(1, 0, 2)).base_offset == 2
    assert log.end_offset == 7


def test_leader_refuses_marker_when_coordinator_or_producer_is_fenced() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"v", producer=(5, 1, 0), transactional=True)
    end_transaction(log, 5, commit=True, producer_epoch=1, coordinator_epoch=4)
    engine.drain()
    before = state_of(log)
    for producer_epoch, coordinator_epoch, code in [
        (1, 3, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (0, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
    ]:
        with pytest.raises(TailraceError) as refusal:
            end_transaction(
                log, 5, commit=False, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
            )
        assert refusal.value.code is code
        assert state_of(log) == before


def test_leader_sets_append_time_when_topic_says_so() -> None:
    engine = Engine(topic=TopicConfig(message_timestamp_type="LogAppendTime"))
    log = engine.log()
    # A timestamp that CreateTime would refuse is of no interest here.
    appended = append(log, b"a", b"b", timestamp=START_MS * 1000, now_ms=START_MS + 7)
    assert appended.timestamp == START_MS + 7
    engine.drain()
    batch = next(log.batches())
    assert list(batch.timestamps()) == [START_MS + 7] * 2
    assert log.offset_for_timestamp(START_MS + 7) == (0, START_MS + 7, 0)
    assert log.offset_for_timestamp(START_MS + 8) is None


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.ZSTD])
def test_leader_recompresses_when_topic_asks_for_another_codec(wanted: str, sent: Codec) -> None:
    engine = Engine(topic=TopicConfig(compression_type=wanted))
    log = engine.log()
    values = [b"value %d " % number * 9 for number in range(20)]
    headers = [[("h", b"1"), ("n", None)]] * 20
    batch = encode_batch(
        values=values,
        keys=[b"k%d" % number for number in range(20)],
        timestamps=list(range(START_MS, START_MS + 20)),
        headers=headers,
        codec=sent,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=START_MS)
    engine.drain()
    check_batch(bytes(log.read(0, max_bytes=1 << 20).data))
    stored = next(killed(engine).log().batches())
    assert stored.header.codec == (Codec.NONE if wanted == "uncompressed" else Codec.from_name(wanted))
    assert list(stored.values()) == values
    assert list(stored.keys()) == [b"k%d" % number for number in range(20)]
    assert list(stored.timestamps()) == list(range(START_MS, START_MS + 20))
    assert [list(one) for one in stored.headers()] == [[("h", b"1"), ("n", None)]] * 20
    assert (stored.header.producer_id, stored.header.base_sequence) == (4, 0)


def test_leader_keeps_bytes_as_sent_when_codec_is_the_producers() -> None:
    engine = Engine()
    log = engine.log()
    batch = encode_batch(values=[b"v" * 500], timestamps=START_MS, codec=Codec.LZ4)
    log.append_as_leader(batch, leader_epoch=0, now_ms=START_MS)
    engine.drain()
    assert bytes(log.read(0, max_bytes=1).data)[32:] == batch[32:]


def test_appends_are_refused_when_too_many_bytes_wait() -> None:
    config = StorageConfig(log_dir="/data", log_pending_max_bytes=1 << 20, message_max_bytes=1 << 20)
    engine = Engine(config=config)
    log = engine.log()
    engine.drain()
    batch = batch_of(b"x" * 500_000)
    accepted = 0
    with pytest.raises(TailraceError) as refusal:
        for _ in range(10):
            log.append_as_leader(batch, leader_epoch=0, now_ms=START_MS)
            accepted += 1
    assert refusal.value.code is ErrorCode.STORAGE_OVERLOADED
    assert refusal.value.retriable
    assert log.home.writer.pending_bytes <= (1 << 20) + len(batch)
    assert log.end_offset == accepted
    with pytest.raises(TailraceError, match="STORAGE_OVERLOADED"):
        log.append_as_follower(numbered(accepted, b"x"), now_ms=START_MS)
    engine.drain()
    assert log.home.writer.pending_bytes == 0
    assert append(log, b"again").base_offset == accepted


# Followers.


def test_follower_keeps_offsets_and_epochs_when_leader_log_has_gaps() -> None:
    engine = Engine(topic=TopicConfig(cleanup_policy=("compact",), segment_bytes=300))
    log = engine.log()
    chunk = numbered(3, b"a", b"b", epoch=1) + numbered(9, b"c", epoch=1) + numbered(40, b"d", epoch=5)
    assert log.append_as_follower(chunk, now_ms=START_MS) == 41
    engine.drain()
    check_invariants(log)
    expected = [(3, b"a"), (4, b"b"), (9, b"c"), (40, b"d")]
    for end_life in (restart, killed, killed):
        assert values_of(engine.log(), 0) == expected
        assert [tuple(entry) for entry in engine.log().epochs.entries()] == [(1, 3), (5, 40)]
        assert engine.log().end_offset == 41
        engine = end_life(engine)


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_follower_goes_on_when_first_append_of_a_life_is_a_fetched_batch(how: str) -> None:
    engine = Engine()
    append(engine.log(), b"a", producer=(1, 0, 0))
    engine.drain()
    again = restart(engine) if how == "restart" else killed(engine)
    log = again.log()
    fetched = numbered(1, b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.append_as_follower(fetched, now_ms=START_MS) == 2
    again.drain()
    assert log.durable_end == 2
    assert values_of(log) == [(0, b"a"), (1, b"b")]
    assert [one.last_sequence for one in log.producers.describe()] == [1]


@pytest.mark.parametrize(
    ("chunk", "code"),
    [
        (numbered(3, b"x") + numbered(2, b"y"), ErrorCode.DIVERGED_LOG),
        (numbered(1, b"x"), ErrorCode.DIVERGED_LOG),
        (numbered(2, b"x", epoch=2) + numbered(3, b"y", epoch=1), ErrorCode.DIVERGED_LOG),
        (numbered(2, b"x") + numbered(3, b"y")[:-1], ErrorCode.CORRUPT_BATCH),
        (numbered(2, b"x") + flipped(numbered(3, b"y"), 99), ErrorCode.CORRUPT_BATCH),
        (numbered(2, b"x") + b"junk", ErrorCode.CORRUPT_BATCH),
    ],
    ids=["going back", "below the end", "epoch going back", "cut off", "flipped", "junk"],
)
def test_follower_takes_nothing_of_a_chunk_when_part_of_it_is_wrong(chunk: bytes, code: ErrorCode) -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a", b"b")
    engine.drain()
    before = state_of(log)
    with pytest.raises(TailraceError) as refusal:
        log.append_as_follower(chunk, now_ms=START_MS)
    assert refusal.value.code is code
    assert state_of(log) == before
    assert log.append_as_follower(numbered(2, b"c"), now_ms=START_MS) == 3
    engine.drain()
    assert offsets_of(killed(engine).log()) == [0, 1, 2]


def test_follower_refuses_batch_by_name_when_no_leader_has_numbered_it() -> None:
    engine = Engine()
    log = engine.log()
    before = state_of(log)
    with pytest.raises(TailraceError):
        log.append_as_follower(batch_of(b"straight from a producer"), now_ms=START_MS)
    assert state_of(log) == before


def test_follower_closes_segments_at_their_size_when_chunk_is_large() -> None:
    engine = Engine(topic=TopicConfig(segment_bytes=1000))
    log = engine.log()
    chunk = b"".join(numbered(offset, b"x" * 200) for offset in range(40))
    log.append_as_follower(chunk, now_ms=START_MS)
    engine.drain()
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len(log.segments) >= 10
    assert offsets_of(killed(engine).log()) == list(range(40))


def test_follower_marks_its_own_synced_end_when_leader_wrote_another() -> None:
    engine = Engine()
    log = engine.log()
    log.append_as_follower(numbered(0, b"a"), now_ms=START_MS)
    engine.drain()
    log.append_as_follower(numbered(1, b"b") + numbered(2, b"c"), now_ms=START_MS)
    engine.drain()
    assert [log.marks.synced_before(batch.header) for batch in log.batches()] == [0, 1, 1]
