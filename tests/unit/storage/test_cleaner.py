"""The cleaner on whole logs: arbitrary histories against a plain model, and its manners on the disk."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.cleaner import Throttle, clean, discard
from tests.support.fault_files import on
from tests.unit.storage.compaction_model import (
    DELETE_RETENTION_MS,
    DIRECTORY,
    SmallLog,
    Written,
    name,
    no_limit,
)

KEYS = [b"a", b"b", b"c", b"d"]

values = st.one_of(st.none(), st.binary(min_size=1, max_size=40))
records = st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=5)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
producer_ids = st.sampled_from([1, 2, 3])

steps = st.one_of(
    st.tuples(st.just("append"), records, codecs),
    st.tuples(st.just("produce"), records, st.sampled_from([11, 12])),
    st.tuples(st.just("transact"), records, producer_ids),
    st.tuples(st.just("transact"), records, producer_ids),
    st.tuples(st.just("commit"), producer_ids),
    st.tuples(st.just("abort"), producer_ids),
    st.tuples(st.just("undecodable"), records),
    st.tuples(st.just("roll")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 1_000])),
    st.tuples(st.just("clean"), st.sampled_from([1 << 20, 1, 3_000]), st.sampled_from([300, 2_000])),
    st.tuples(st.just("expire")),
)


def run(log: SmallLog, history: list[tuple]) -> None:  # type: ignore[type-arg]
    for step in history:
        match step:
            case ("append", batch, codec):
                log.append(batch, codec=codec)
            case ("produce", batch, producer_id):
                log.append(batch, producer_id=producer_id)
            case ("transact", batch, producer_id):
                log.append(batch, producer_id=producer_id, transactional=True)
            case ("commit" | "abort" as kind, producer_id):
                if producer_id in log.producers and log.producers[producer_id].in_transaction:
                    log.end_transaction(producer_id, commit=kind == "commit")
            case ("undecodable", batch):
                log.append(batch, undecodable=True)
            case ("roll",):
                log.roll()
            case ("wait", milliseconds):
                log.now_ms += milliseconds
            case ("clean", key_map_bytes, segment_bytes):
                log.clean(key_map_bytes=key_map_bytes, segment_bytes=segment_bytes)
                log.check()
            case ("expire",):
                log.states.expire(log.now_ms, 900)
                for producer_id, producer in list(log.producers.items()):
                    if producer_id not in log.states and not producer.in_transaction:
                        producer.sequence = 0


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=8, max_size=60))
def test_cleaner_changes_nothing_that_readers_rely_on_when_history_is_arbitrary(
    history: list[tuple],  # type: ignore[type-arg]
) -> None:
    log = SmallLog()
    run(log, history)
    log.roll()
    log.clean()
    log.check()
    log.now_ms += DELETE_RETENTION_MS
    log.clean()
    log.check()
