"""The committed vectors: this software reads them, and still writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tests.vectors.make import describe, documents

VECTOR_FILES = Path(__file__).parents[2] / "vectors"
VECTORS = {path.name: json.loads(path.read_text()) for path in VECTOR_FILES.glob("*.json")}
VALID = [name for name, vector in VECTORS.items() if "records" in vector]
INVALID = [name for name, vector in VECTORS.items() if "error" in vector]


def test_vectors_are_those_of_the_script_when_listed() -> None:
    assert sorted(VECTORS) == sorted(name for name, _ in documents())
    assert len(VALID) >= 12
    assert len(INVALID) >= 12


@pytest.mark.parametrize("name", VALID)
def test_vector_decodes_to_its_records_when_valid(name: str) -> None:
    vector = VECTORS[name]
    expected = {"header": vector["header"], "records": vector["records"]}
    assert describe(bytes.fromhex(vector["hex"])) == expected


@pytest.mark.parametrize("name", INVALID)
def test_vector_gives_its_error_when_invalid(name: str) -> None:
    vector = VECTORS[name]
    data = bytes.fromhex(vector["hex"])
    if vector["found_by"] == "decode":
        check_batch(data)
    with pytest.raises(TailraceError) as caught:
        check_batch(data) if vector["found_by"] == "check" else Batch(data).records("", 0)
    assert caught.value.code is ErrorCode[vector["error"]]


def test_vectors_are_reproduced_byte_by_byte_when_not_compressed() -> None:
    compared = 0
    for name, document in documents():
        if "header" in document and document["header"]["attributes"] & 0x0F == 0:
            assert document == VECTORS[name], name
            compared += 1
    assert compared >= 12


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("name", [name for name in VALID if name != "not-smallest.json"])
def test_vector_is_written_again_from_its_json_when_not_compressed(name: str) -> None:
    vector = VECTORS[name]
    header: dict[str, Any] = vector["header"]
    records = vector["records"]
    if header["attributes"] & 0x0F or header["append_timestamp"] >= 0 or not records:
        # Other bytes may be right too, or the records' own timestamps are not in the JSON.
        assert check_batch(bytes.fromhex(vector["hex"])).record_count == len(records)
        return
    keys = [_bytes(record["key"]) for record in records]
    data = encode_batch(
        values=[_bytes(record["value"]) for record in records],
        keys=keys,
        timestamps=[record["timestamp"] for record in records],
        headers=[[(pair[0], _bytes(pair[1])) for pair in record["headers"]] for record in records],
        offset_deltas=[record["offset"] - header["base_offset"] for record in records],
        last_offset_delta=header["last_offset_delta"],
        transactional=bool(header["attributes"] & 0x10),
        control=bool(header["attributes"] & 0x20),
        **{
            field: header[field]
            for field in (
                "base_offset",
                "leader_epoch",
                "producer_id",
                "producer_epoch",
                "base_sequence",
                "delete_horizon",
            )
        },
    )
    assert data.hex() == vector["hex"]
