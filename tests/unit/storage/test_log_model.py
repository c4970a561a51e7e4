"""A log beside a plain list: any sequence of operations must look the same in both.

The model is a list of batches and two offsets. Kills and restarts happen after everything queued has been
written; what a crash may lose is the business of the crash tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.records import iterate_batches
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tests.support.checks import check_consistent
from tests.support.driving import check_invariants, killed, restart
from tests.support.engine import START_MS, Engine

CONFIG = StorageConfig(
    log_dir="/data",
    journal_bytes=16 * 1024,
    journal_max_append_bytes=500,
    num_recovery_threads_per_data_dir=1,
    log_cleaner_enable=False,
)
# Compacted, because only then are gaps in the offsets of a follower ordinary.
TOPIC = TopicConfig(
    cleanup_policy=("compact", "delete"),
    segment_bytes=900,
    index_interval_bytes=150,
    file_delete_delay_ms=1000,
    message_timestamp_after_max_ms=10**9,
)


@dataclass(frozen=True)
class Stored:
    base: int
    values: tuple[bytes, ...]
    stamps: tuple[int, ...]
    epoch: int

    @property
    def next(self) -> int:
        return self.base + len(self.values)


@dataclass
class Model:
    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    watermark: int = 0
    epoch: int = 0


fraction = st.floats(0, 1)
operations = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 300), min_size=1, max_size=3), st.integers(0, 50)),
    st.tuples(st.just("append"), st.lists(st.integers(0, 300), min_size=1, max_size=3), st.integers(0, 50)),
    st.tuples(st.just("follow"), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 50)),
    st.tuples(st.just("read"), fraction, st.integers(0, 1500), fraction),
    st.tuples(st.just("lookup"), st.integers(0, 60), fraction),
    st.tuples(st.just("truncate"), fraction),
    st.tuples(st.just("delete records"), fraction),
    st.tuples(st.just("watermark"), fraction),
    st.tuples(st.just("retain bytes"), st.integers(0, 3000)),
    st.just(("roll",)),
    st.just(("epoch",)),
    st.just(("drain",)),
    st.just(("run one",)),
    st.just(("checkpoint",)),
    st.just(("restart",)),
    st.just(("kill",)),
)


class Pair:
    """A log and its model."""

    def __init__(self) -> None:
        self.engine = Engine(topic=TOPIC, config=CONFIG)
        self.model = Model()
        self.serial = 0

    def pick(self, share: float, low: int, high: int) -> int:
        return low + round(share * (high - low))

    def encoded(self, base: int, sizes: list[int], time: int) -> tuple[bytes, Stored]:
        self.serial += 1
        values = tuple(b"%d." % self.serial + b"x" * size for size in sizes)
        stamps = tuple(START_MS + (time + 17 * number) % 60 for number in range(len(sizes)))
        stored = Stored(base, values, stamps, self.model.epoch)
        batch = encode_batch(
            values=values,
            keys=[b"k"] * len(values),
            timestamps=list(stamps),
            base_offset=base,
            leader_epoch=self.model.epoch,
        )
        return batch, stored

    def took(self, stored: Stored) -> None:
        self.model.batches.append(stored)
        self.model.end = stored.next

    def append(self, sizes: list[int], time: int) -> None:
        batch, stored = self.encoded(self.model.end, sizes, time)
        log = self.engine.log()
        appended = log.append_as_leader(batch, leader_epoch=self.model.epoch, now_ms=START_MS)
        assert (appended.base_offset, appended.last_offset) == (stored.base, stored.next - 1)
        self.took(stored)

    def follow(self, gaps: list[int], time: int) -> None:
        chunk = b""
        for gap in gaps:
            batch, stored = self.encoded(self.model.end + gap, [5, 60], time)
            chunk += batch
            self.took(stored)
        assert self.engine.log().append_as_follower(chunk, now_ms=START_MS) == self.model.end

    def read(self, start: float, max_bytes: int, end: float) -> None:
        model = self.model
        offset = self.pick(start, model.start, model.end)
        bound = self.pick(end, model.start, model.end)
        data, next_offset = self.engine.log().read(offset, max_bytes=max_bytes, end_offset=bound)
        found = [
            Stored(
                batch.header.base_offset,
                tuple(value for value in batch.values() if value is not None),
                tuple(batch.timestamps()),
                batch.header.leader_epoch,
            )
            for batch in iterate_batches(data)
        ]
        wanted = [one for one in model.batches if one.next > offset and one.next <= bound]
        assert found == wanted[: len(found)]
        assert bool(found) == bool(wanted)
        assert len(data) <= max_bytes or len(found) == 1
        following = wanted[len(found)].base if len(found) < len(wanted) else model.end
        assert (found[-1].next if found else offset) <= next_offset <= max(following, offset)

    def lookup(self, time: int, end: float) -> None:
        model = self.model
        bound = self.pick(end, model.start, model.end)
        found = self.engine.log().offset_for_timestamp(START_MS + time, end_offset=bound)
        wanted = next(
            (
                (offset, stamp, one.epoch)
                for one in model.batches
                for offset, stamp in zip(range(one.base, one.next), one.stamps, strict=True)
                if stamp >= START_MS + time and model.start <= offset < bound
            ),
            None,
        )
        assert found == wanted

    def truncate(self, share: float) -> None:
        model = self.model
        offset = self.pick(share, model.start, model.end)
        end = self.engine.log().truncate_to(offset, now_ms=START_MS)
        if offset == model.end:
            assert end == offset
            return
        model.batches = [one for one in model.batches if one.next <= offset]
        below = model.batches[-1].next if model.batches else 0
        assert below <= end <= max(offset, model.start)
        model.end = end
        model.start = self.engine.log().log_start_offset
        assert model.start <= model.end
        model.watermark = min(model.watermark, end)

    def delete_records(self, share: float) -> None:
        model = self.model
        log = self.engine.log()
        offset = self.pick(share, model.start, max(log.high_watermark, model.start))
        model.start = max(model.start, offset)
        assert log.delete_records(offset) == model.start
        self.forget_below()

    def retain(self, size: int) -> None:
        log = self.engine.log()
        log.config = replace(log.config, retention_bytes=size)
        self.engine.manager.enforce_retention(START_MS)
        assert self.model.start <= log.log_start_offset <= max(log.high_watermark, self.model.start)
        self.model.start = log.log_start_offset
        self.forget_below()

    def forget_below(self) -> None:
        self.model.batches = [one for one in self.model.batches if one.next > self.model.start]

    def end_life(self, *, cleanly: bool) -> None:
        self.engine.drain()
        assert self.engine.log().durable_end == self.model.end
        self.engine = restart(self.engine) if cleanly else killed(self.engine)
        assert not self.engine.report.corrupt, self.engine.report.corrupt
        log = self.engine.log()
        last = self.model.batches[-1].next if self.model.batches else self.model.start
        assert last <= log.end_offset <= self.model.end
        assert not cleanly or log.end_offset == self.model.end
        self.model.end = log.end_offset
        # A segment without records, in a gap of the offsets, may have gone: nothing was in it.
        first = self.model.batches[0].base if self.model.batches else self.model.end
        assert self.model.start <= log.log_start_offset <= max(self.model.start, first)
        self.model.start = log.log_start_offset

    def run(self, operation: tuple) -> None:  # type: ignore[type-arg]
        log = self.engine.log()
        match operation:
            case ("append", sizes, time):
                self.append(sizes, time)
            case ("follow", gaps, time):
                self.follow(gaps, time)
            case ("read", start, max_bytes, end):
                self.read(start, max_bytes, end)
            case ("lookup", time, end):
                self.lookup(time, end)
            case ("truncate", share):
                self.truncate(share)
            case ("delete records", share):
                self.delete_records(share)
            case ("watermark", share):
                log.advance_high_watermark(self.pick(share, log.high_watermark, self.model.end))
            case ("retain bytes", size):
                self.retain(size)
            case ("roll",):
                log.roll(now_ms=START_MS)
            case ("epoch",):
                self.model.epoch += 1
            case ("drain",):
                self.engine.drain()
            case ("run one",):
                self.engine.blocking.run_one()
            case ("checkpoint",):
                log.files.checkpoint()
            case ("restart",):
                self.end_life(cleanly=True)
            case ("kill",):
                self.end_life(cleanly=False)
            case _:
                raise AssertionError(operation)
        check_invariants(self.engine.log())

    def check(self) -> None:
        log = self.engine.log()
        assert (log.log_start_offset, log.end_offset) == (self.model.start, self.model.end)
        found = [
            (offset, value)
            for batch in log.batches()
            for offset, value in zip(batch.offsets(), batch.values(), strict=True)
        ]
        wanted = [
            (one.base + number, value)
            for one in self.model.batches
            for number, value in enumerate(one.values)
        ]
        assert found == wanted
        if self.model.batches and self.model.batches[0].base <= self.model.start:
            check_consistent(log, "model")


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(operations, min_size=5, max_size=50))
def test_log_equals_a_plain_list_when_history_is_arbitrary(history: list[tuple]) -> None:  # type: ignore[type-arg]
    pair = Pair()
    for operation in history:
        pair.run(operation)
    pair.check()
    for cleanly in (False, True):
        pair.end_life(cleanly=cleanly)
        pair.check()
