"""The key map is exact, and says honestly how much memory it takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.storage.core.keymap import KeyMap

keys = st.one_of(st.none(), st.binary(max_size=3))


@given(st.lists(st.lists(keys, max_size=6), max_size=12))
def test_key_map_knows_last_offset_when_keys_repeat(batches: list[list[bytes | None]]) -> None:
    keymap = KeyMap(1 << 20)
    model: dict[bytes, int] = {}
    offset = 0
    for batch in batches:
        offsets = range(offset, offset + len(batch))
        keymap.put_batch(batch, offsets)
        model.update((key, at) for key, at in zip(batch, offsets, strict=True) if key is not None)
        offset += len(batch)
    assert len(keymap) == len(model)
    asked: list[bytes | None] = [*model, None, b"never seen"]
    assert keymap.last_offsets(asked).tolist() == [*model.values(), -1, -1]
    assert all(keymap.get(key) == last for key, last in model.items())


def test_key_map_stays_exact_when_hashes_collide() -> None:
    class Collides(bytes):
        def __hash__(self) -> int:
            return 7

    keymap = KeyMap(1 << 20)
    keymap.put_batch([Collides(b"a"), Collides(b"b")], [1, 2])
    assert keymap.last_offsets([Collides(b"a"), Collides(b"b"), Collides(b"c")]).tolist() == [1, 2, -1]


def test_key_map_counts_at_least_what_it_holds_when_it_grows() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        keymap = KeyMap(1 << 30)
        for start in range(2**40, 2**40 + 40_000, 500):
            keymap.put_batch([b"key-%d" % at for at in range(start, start + 500)], range(start, start + 500))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held <= keymap.bytes_used <= 2 * held


def test_key_map_counts_nothing_more_when_keys_are_known() -> None:
    keymap = KeyMap(1 << 20)
    keymap.put_batch([b"a", b"b"], [1, 2])
    used = keymap.bytes_used
    keymap.put_batch([b"b", b"a", None], [3, 4, 5])
    assert keymap.bytes_used == used
    assert keymap.last_offsets([b"a", b"b"]).tolist() == [4, 3]


def test_key_map_is_full_when_limit_is_reached() -> None:
    keymap = KeyMap(64 * 1024)
    offset = 0
    while not keymap.full:
        keymap.put_batch([b"%020d" % offset], [offset])
        offset += 1
    assert keymap.bytes_used >= 64 * 1024
    # Each entry costs about 150 bytes: its key, its offset and its share of the table.
    assert 200 < len(keymap) < 800


def test_key_map_answers_with_an_empty_array_when_nothing_is_asked() -> None:
    answer = KeyMap(100).last_offsets([])
    assert answer.dtype == np.int64
    assert len(answer) == 0
