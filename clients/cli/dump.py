"""What `tailrace log dump` shows: the content of partitions as a stream of events.

Nothing is held longer than a batch, so a segment of any size can be shown. Damage is an event in its place,
and the stream goes on where another batch is found. Only the command in `log` uses this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.clients.cli.output import Event, Format, format_bytes
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.storage.core.aborted import decode_aborted
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.derived import snapshot_path
from tailrace.cluster.storage.files import Files, parent_of
from tailrace.cluster.storage.inspect import (
    Damage,
    FoundBatch,
    Kind,
    SegmentFile,
    Source,
    Target,
    is_zero_from,
    list_partition,
    lone_segment,
    position_before,
    read_index,
    reason,
    walk,
)
from tailrace.cluster.storage.logstate import STATE_FILE, read_log_state
from tailrace.cluster.storage.recovery import read_identity

_END = 2**63 - 1
_CORRUPT = ErrorCode.STORAGE_CORRUPT.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    records: bool = False
    indexes: bool = False
    epochs: bool = False
    producers: bool = False
    first: int = 0
    """Batches that hold this offset or later ones are shown."""
    end: int = _END
    """Nothing from this offset on is shown."""
    limit: int = _END
    """How many batches of a partition are shown; how many records, when records are."""
    key: Format = Format.TEXT
    value: Format = Format.TEXT


def dump(files: Files, target: Target, options: DumpOptions) -> Iterator[Event]:
    if target.kind is Kind.SEGMENT:
        log = parent_of(target.path).rpartition("/")[2]
        yield from _Dump(files, log, options).segments([lone_segment(files, target.path)])
        return
    for path in target.partitions:
        log = path.rpartition("/")[2]
        try:
            yield from _Dump(files, log, options).partition(path)
        except FileNotFoundError as error:
            yield _damage(log, error.filename or path, None, "it was removed while it was read")


def is_damage(event: Event) -> bool:
    return event["type"] == "damage" or (event["type"] == "batch" and event["problem"] is not None)


class _Dump:
    """One partition; `_left` counts down what may still be shown of it."""

    def __init__(self, files: Files, log: str, options: DumpOptions) -> None:
        self._files = files
        self._log = log
        self._options = options
        self._left = options.limit

    def partition(self, path: str) -> Iterator[Event]:
        heading: Event = {"type": "partition", "log": self._log, "path": path}
        try:
            identity = read_identity(self._files, path)
            yield heading | {
                "topic_id": identity.topic_id.hex(),
                "log_start_offset": identity.log_start_offset,
            }
        except (FileNotFoundError, TailraceError) as error:
            yield heading | {"topic_id": None, "log_start_offset": None}
            problem, code = "partition.json is missing", ErrorCode.STORAGE_CORRUPT
            if isinstance(error, TailraceError):
                problem, code = str(error.args[0]), error.code
            yield _damage(self._log, f"{path}/partition.json", None, problem, code=code)
        if self._options.epochs:
            yield from self._epochs(path)
        listing = list_partition(self._files, path)
        if self._options.producers:
            for offset in listing.snapshots:
                yield from self._snapshot(path, offset)
        yield from self.segments(listing.segments)

    def segments(self, segments: list[SegmentFile]) -> Iterator[Event]:
        options = self._options
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else _END
            if following <= options.first:
                continue
            if segment.base_offset >= options.end or not self._left:
                return
            yield {
                "type": "segment",
                "log": self._log,
                "path": segment.path,
                "base_offset": segment.base_offset,
                "size": segment.size,
            }
            if options.indexes:
                yield from self._indexes(segment)
            yield from self._batches(segment)

    # Batches.

    def _batches(self, segment: SegmentFile) -> Iterator[Event]:
        index, _, _ = read_index(self._files, segment)
        file = self._files.open(segment.path)
        try:
            source = Source(file)
            start = position_before(source, index, self._options.first)
            for found in walk(source, start=start, expected_offset=segment.base_offset):
                if isinstance(found, Damage):
                    yield self._broken(segment, source, found)
                    continue
                if found.header.base_offset >= self._options.end or not self._left:
                    return
                yield from self._batch(segment, found)
        finally:
            file.close()

    def _broken(self, segment: SegmentFile, source: Source, found: Damage) -> Event:
        if found.end == source.size and is_zero_from(source, found.position):
            return {
                "type": "reserved",
                "log": self._log,
                "path": segment.path,
                "position": found.position,
                "size": source.size - found.position,
            }
        resumes_at = found.end if found.end < source.size else None
        return _damage(self._log, segment.path, found.position, found.problem, resumes_at=resumes_at)

    def _batch(self, segment: SegmentFile, found: FoundBatch) -> Iterator[Event]:
        header = found.header
        if found.intact and header.last_offset < self._options.first:
            return
        if not self._options.records:
            self._left -= 1
        yield {
            "type": "batch",
            "log": self._log,
            "path": segment.path,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "position": found.position,
            "size": header.size,
            "count": header.record_count,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "append_timestamp": header.append_timestamp,
            "codec": _codec_name(header.codec),
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "leader_epoch": header.leader_epoch,
            "sync_mark": header.sync_mark,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon": header.delete_horizon,
            "uncompressed_size": header.uncompressed_size,
            "crc_ok": found.intact,
            "code": None if found.problem is None else _CORRUPT,
            "problem": found.problem,
        }
        if found.intact and (header.is_control or self._options.records):
            try:
                yield from self._content(Batch(found.data, header))
            except TailraceError as error:
                problem = f"the batch cannot be decoded, though its checksum is right: {reason(error)}"
                yield _damage(self._log, segment.path, found.position, problem, code=error.code)

    def _content(self, batch: Batch) -> Iterator[Event]:
        options = self._options
        if batch.header.is_control:
            for offset, marker in zip(batch.offsets(), decode_markers(batch), strict=True):
                yield {
                    "type": "marker",
                    "log": self._log,
                    "offset": offset,
                    "kind": "commit" if marker.commit else "abort",
                    "producer_id": marker.producer_id,
                    "producer_epoch": marker.producer_epoch,
                    "coordinator_epoch": marker.coordinator_epoch,
                }
            return
        for record in batch.records(self._log, 0):
            if not options.first <= record.offset < options.end:
                continue
            if not self._left:
                return
            self._left -= 1
            yield {
                "type": "record",
                "log": self._log,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": format_bytes(record.key, options.key),
                "value": format_bytes(record.value, options.value),
                "headers": [[name, format_bytes(value, options.value)] for name, value in record.headers],
            }

    # What is derived from them.

    def _indexes(self, segment: SegmentFile) -> Iterator[Event]:
        index, valid, size = read_index(self._files, segment)
        for entry in index.entries():
            yield {"type": "index_entry", "log": self._log, **entry._asdict()}
        if segment.index_path is not None and valid < size:
            yield _damage(self._log, segment.index_path, valid, "no valid index frame is there")
        if segment.txn_index_path is None:
            return
        data = self._files.read(segment.txn_index_path)
        aborted, valid = decode_aborted(data)
        for transaction in aborted:
            yield {"type": "aborted_transaction", "log": self._log, **transaction._asdict()}
        if valid < len(data):
            yield _damage(self._log, segment.txn_index_path, valid, "no valid frame of transactions is there")

    def _epochs(self, directory: str) -> Iterator[Event]:
        path = f"{directory}/{STATE_FILE}"
        try:
            state = read_log_state(self._files, directory)
        except FileNotFoundError:
            return  # It is written with the first checkpoint.
        except TailraceError as error:
            yield _damage(self._log, path, None, str(error.args[0]), code=error.code)
            return
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            yield _damage(self._log, path, None, f"it lacks a usable {error}")
            return
        for entry in state.epochs.entries():
            yield {"type": "epoch", "log": self._log, **entry._asdict()}

    def _snapshot(self, directory: str, offset: int) -> Iterator[Event]:
        path = snapshot_path(directory, offset)
        try:
            states, end = ProducerStates.decode(self._files.read(path))
        except FileNotFoundError:
            return  # A newer one has replaced it.
        except TailraceError as error:
            yield _damage(self._log, path, None, str(error.args[0]), code=error.code)
            return
        yield {"type": "snapshot", "log": self._log, "path": path, "offset": end, "count": len(states)}
        for producer in states.describe():
            yield {"type": "producer", "log": self._log, **producer._asdict()}


def _damage(
    log: str,
    path: str,
    position: int | None,
    problem: str,
    *,
    code: ErrorCode = ErrorCode.STORAGE_CORRUPT,
    resumes_at: int | None = None,
) -> Event:
    return {
        "type": "damage",
        "log": log,
        "path": path,
        "position": position,
        "code": code.name,
        "problem": problem.removeprefix(f"{path} "),
        "resumes_at": resumes_at,
    }


def _codec_name(number: int) -> str:
    try:
        return Codec(number).name.lower()
    except ValueError:
        return str(number)
