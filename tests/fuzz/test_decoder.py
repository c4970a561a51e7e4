"""The fuzz target over seeded mutations: a few seconds of what atheris does for hours."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.batch import parse_header
from tests.fuzz.decoder import mend, read_everything
from tests.vectors.make import invalid, valid

SEEDS = [data for _, _, data in valid() if len(data) < 5000] + [data for *_, data in invalid()]
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 0x7F, 0x80, 0xFF)
INTERESTING_WORDS = (0, 1, 5, 92, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        # Most of what can go wrong is in the header and directory.
        limit = min(len(changed), 150) if rng.random() < 0.7 else len(changed)
        if limit < 8:
            break
        at = rng.randrange(limit)
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice(INTERESTING)
            case 2:
                struct.pack_into("<I", changed, min(at, len(changed) - 4), rng.choice(INTERESTING_WORDS))
            case 3:
                del changed[at : at + rng.randrange(1, 9)]
            case 4:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                # Columns and counts decide how everything after them is read.
                struct.pack_into("<H", changed, min(38, len(changed) - 2), rng.randrange(1 << 14))
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_decoder_returns_or_names_the_error_when_batches_are_mutated(seed: int) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(1500):
        data = mutate(rng.choice(SEEDS), rng)
        read_everything(data)
        read += read_everything(mend(data))
    # Mutations that nothing survives would test the checksums only.
    assert read > 100


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_decoder_returns_or_names_the_error_when_bytes_are_arbitrary(data: bytes) -> None:
    read_everything(data)
    read_everything(mend(bytes(92) + data))


def test_decoder_reads_every_seed_when_nothing_is_changed() -> None:
    for _, _, data in valid():
        assert read_everything(data + data) == 2 * parse_header(data).record_count
