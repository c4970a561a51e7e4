"""Small state files: JSON that people can read, under a header line that programs can check.

    tailrace partition v1 crc32c=1a2b3c4d
    {
    "topic_id": "0b7f...",
    "log_start": 0
    }

Owns the header, its checksum and the messages about damage; what a kind of file says is its user's business.
The checksum covers the header too, so a flipped version or kind is damage and not a foreign file. Files are
replaced as a whole (`write_atomic`): a reader sees the old state or the new one.

A later version of a kind may change its JSON in any way, but not the form of the header.
"""

from __future__ import annotations

import json
import re
from typing import Any

import google_crc32c

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import Files, write_atomic

_HEADER = re.compile(rb"(tailrace ([a-z][a-z0-9-]*) v([1-9][0-9]{0,8})) crc32c=([0-9a-f]{8})")
_KIND = re.compile(r"[a-z][a-z0-9-]*")
_LINES_TO_DEPTH = 2
_encode = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode

DEFAULT_REMEDY = (
    "Restore it from a backup, or, if other replicas hold the data, remove the directory that it is in "
    "and let it be filled again from them."
)


def write_state(
    files: Files, path: str, kind: str, version: int, body: dict[str, Any], *, sync: bool = True
) -> None:
    """Replace the file. Without `sync` the state survives the end of the process, not a loss of power."""
    if not _KIND.fullmatch(kind) or not 1 <= version < 10**9:
        raise ValueError(f"state file {path}: {kind!r} v{version} cannot be written in a header")
    head = f"tailrace {kind} v{version}".encode()
    text = _lines(body, 1).encode() + b"\n"
    write_atomic(files, path, b"%b crc32c=%08x\n%b" % (head, _checksum(head, text), text), sync=sync)


def read_state(
    files: Files, path: str, kind: str, max_version: int, *, remedy: str = DEFAULT_REMEDY
) -> tuple[int, dict[str, Any]]:
    """The version and body of a file, checked.

    FileNotFoundError if there is none; STORAGE_CORRUPT if it is damaged or of another kind;
    UNSUPPORTED_VERSION if it is whole but newer than `max_version`. `remedy` tells people what to do
    about damage.
    """
    data = files.read(path)
    line, _, text = data.partition(b"\n")
    header = _HEADER.fullmatch(line)
    if header is None:
        problem = "is empty" if not data else "does not begin with the header of a Tailrace state file"
        raise _corrupt(path, problem, remedy)
    head, found_kind, found_version, checksum = header.groups()
    expected, actual = int(checksum, 16), _checksum(head, text)
    if expected != actual:
        raise _corrupt(path, f"is damaged (checksum {actual:08x}, its header says {expected:08x})", remedy)
    if found_kind.decode() != kind:
        raise _corrupt(path, f"holds state of kind {found_kind.decode()!r} instead of {kind!r}", remedy)
    version = int(found_version)
    if version > max_version:
        raise TailraceError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{path} has version {version} of {kind!r}, written by a newer Tailrace; this one knows versions "
            f"up to {max_version}. Start the newer release again: going back is not possible with this file.",
        )
    try:
        body = json.loads(text)
    except ValueError as error:
        raise _corrupt(path, f"is not valid JSON ({error})", remedy) from error
    if not isinstance(body, dict):
        raise _corrupt(path, "holds JSON that is not an object", remedy)
    return version, body


def _checksum(head: bytes, text: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(head + b"\n"), text))


def _lines(value: dict[str, Any], depth: int) -> str:
    """An entry a line in the outer objects, the rest compact: readable, yet encoded by the C encoder."""
    if not value:
        return "{}"
    entries = []
    for key, item in value.items():
        nested = isinstance(item, dict) and depth < _LINES_TO_DEPTH
        entries.append(f"{_encode(key)}: {_lines(item, depth + 1) if nested else _encode(item)}")
    return "{\n" + ",\n".join(entries) + "\n}"


def _corrupt(path: str, problem: str, remedy: str) -> TailraceError:
    return TailraceError(ErrorCode.STORAGE_CORRUPT, f"{path} {problem}. {remedy}")
