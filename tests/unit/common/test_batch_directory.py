"""Rules about columns that need none of their bytes."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.directory import MAX_RECORDS
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tests.vectors.forge import forge

VALUES = {4: (0, 2, b""), 13: (0, 4, b"abcd")}


def test_check_batch_accepts_each_form_of_integers_when_lengths_agree() -> None:
    for width in (1, 2, 4, 8):
        sizes = (2).to_bytes(width, "little") * 2
        check_batch(forge({4: (width, 2 * width, sizes), 13: (0, 4, b"abcd")}, record_count=2))
    check_batch(forge(VALUES, record_count=2))


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ({1: (0, 1, b"\1")}, "key validity without key sizes"),
        ({12: (0, 1, b"k")}, "key bytes without key sizes"),
        ({3: (0, 1, b"\1")}, "value validity without value sizes"),
        ({13: (0, 1, b"v")}, "value bytes without value sizes"),
        ({7: (0, 1, b"")}, "header key sizes without header counts"),
        ({9: (0, 1, b"")}, "header value sizes without header counts"),
        ({6: (0, 1, b""), 8: (0, 1, b"\1")}, "header value validity without header value sizes"),
        ({6: (0, 1, b""), 10: (0, 1, b"h")}, "header key bytes without header key sizes"),
        ({6: (0, 1, b""), 11: (0, 1, b"h")}, "header value bytes without header value sizes"),
    ],
)
def test_check_batch_refuses_a_column_when_the_one_it_belongs_to_is_missing(
    columns: dict[int, tuple[int, int, bytes]], missing: str
) -> None:
    with pytest.raises(TailraceError, match=missing) as caught:
        check_batch(forge(columns))
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({4: (3, 6, b"\0" * 6)}, "wrong directory entry for value sizes: encoding 3"),
        ({4: (16, 32, b"\0" * 32)}, "wrong directory entry for value sizes: encoding 16"),
        ({4: (1, 3, b"\0" * 3)}, "wrong directory entry for value sizes"),
        ({4: (2, 2, b"\0" * 2)}, "wrong directory entry for value sizes"),
        ({0: (1, 1, b"\0")}, "wrong directory entry for timestamp deltas"),
        ({5: (8, 8, b"\0" * 8)}, "wrong directory entry for offset deltas"),
        ({4: (0, 0, b""), 3: (0, 2, b"\0\0")}, "wrong directory entry for value validity"),
        ({4: (0, 0, b""), 3: (1, 1, b"\0")}, "wrong directory entry for value validity"),
        ({2: (0, 0, b""), 1: (0, 0, b"")}, "wrong directory entry for key validity"),
        ({4: (0, 1, b""), 13: (1, 2, b"ab")}, "wrong directory entry for value bytes"),
        ({4: (0, 2, b""), 13: (0, 3, b"abc")}, "3 value bytes, but 2 records of 2 bytes each"),
        ({4: (0, 1, b"")}, "0 value bytes, but 2 records of 1 bytes each"),
        ({2: (0, 1, b""), 12: (0, 1, b"k")}, "1 key bytes, but 2 records"),
        ({6: (0, 1, b""), 7: (1, 3, b"\0" * 3)}, "wrong directory entry for header key sizes"),
        ({6: (0, 1, b""), 7: (2, 3, b"\0" * 3)}, "wrong directory entry for header key sizes"),
        ({6: (0, 1, b""), 7: (3, 6, b"\0" * 6)}, "wrong directory entry for header key sizes"),
        (
            {6: (0, 1, b""), 7: (0, 0, b""), 8: (0, 2, b"\0\0"), 9: (0, 0, b"")},
            "wrong directory entry for header value validity",
        ),
        (
            {6: (1, 2, b"\1\1"), 7: (1, 2, b"\0\0"), 9: (1, 3, b"\0\0\0")},
            "wrong directory entry for header value sizes",
        ),
        ({6: (0, 2**32 - 1, b"")}, "expand too far"),
    ],
)
def test_check_batch_names_the_column_when_its_entry_is_wrong(
    columns: dict[int, tuple[int, int, bytes]], text: str
) -> None:
    with pytest.raises(TailraceError, match=text) as caught:
        check_batch(forge(columns, record_count=2))
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_check_batch_refuses_columns_when_there_are_no_records() -> None:
    with pytest.raises(TailraceError, match="0 records"):
        check_batch(forge({4: (0, 0, b"")}, record_count=0))
    assert check_batch(forge(record_count=0, last_offset_delta=7)).last_offset_delta == 7


def test_check_batch_refuses_a_sum_of_columns_when_the_header_says_another() -> None:
    with pytest.raises(TailraceError, match="columns of 4 bytes in all, where its header says 5"):
        check_batch(forge(VALUES, record_count=2, attributes=3, uncompressed_size=5))


def test_check_batch_refuses_more_records_than_any_batch_may_hold_when_the_batch_is_large_enough() -> None:
    count = MAX_RECORDS + 1
    sizes = bytes(count // 1024 + 1)
    data = forge({4: (0, 0, b"")}, record_count=count, attributes=3, block=sizes)
    with pytest.raises(TailraceError, match="expand too far"):
        check_batch(data)


def test_check_batch_refuses_a_codec_when_there_is_nothing_to_compress() -> None:
    with pytest.raises(TailraceError, match="nothing to compress"):
        check_batch(forge({4: (0, 0, b"")}, attributes=4))


def test_check_batch_refuses_a_directory_when_it_runs_past_the_size() -> None:
    with pytest.raises(TailraceError, match="ends within its column directory"):
        check_batch(forge(columns=0b10100))
