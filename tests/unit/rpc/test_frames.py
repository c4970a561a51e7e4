"""The queue of frames to a peer: bounded, in order, taken in batches; and the form of a message."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.rpc.frames import FrameQueue, Put, QueueLimits, encode_frames
from tailrace.v1.raft_pb2 import RaftFrames


def queue(max_frames: int = 10, max_bytes: int = 100, max_batch_bytes: int = 30) -> FrameQueue:
    return FrameQueue(
        QueueLimits(max_frames=max_frames, max_bytes=max_bytes, max_batch_bytes=max_batch_bytes)
    )


def test_frames_are_taken_together_when_several_wait() -> None:
    waiting = queue()
    for frame in (b"a" * 10, b"b" * 10, b"c" * 10, b"d"):
        assert waiting.put(frame) is Put.QUEUED
    assert waiting.take() == [b"a" * 10, b"b" * 10, b"c" * 10]
    assert waiting.take() == [b"d"]


def test_frame_is_taken_alone_when_it_is_larger_than_a_batch() -> None:
    waiting = queue()
    for frame in (b"a", b"b" * 50, b"c"):
        waiting.put(frame)
    assert [waiting.take(), waiting.take(), waiting.take()] == [[b"a"], [b"b" * 50], [b"c"]]


def test_frame_is_refused_when_the_queue_is_full() -> None:
    by_count = queue(max_frames=2)
    assert [by_count.put(b"x") for _ in range(3)] == [Put.QUEUED, Put.QUEUED, Put.FULL]
    by_size = queue(max_bytes=10)
    assert [by_size.put(b"x" * size) for size in (6, 5, 4)] == [Put.QUEUED, Put.FULL, Put.QUEUED]
    by_size.take()
    assert by_size.put(b"x" * 10) is Put.QUEUED


def test_nothing_is_taken_or_put_when_the_queue_is_closed() -> None:
    waiting = queue()
    waiting.put(b"lost")
    waiting.close()
    assert waiting.take() is None
    assert waiting.put(b"x") is Put.CLOSED


def test_taker_wakes_when_a_frame_comes_or_the_queue_is_closed() -> None:
    waiting = queue()
    taken: SimpleQueue[list[bytes] | None] = SimpleQueue()

    def take_twice() -> None:
        for _ in range(2):
            taken.put(waiting.take())

    taker = threading.Thread(target=take_twice, daemon=True)
    taker.start()
    waiting.put(b"a")
    assert taken.get(timeout=30) == [b"a"]
    waiting.close()
    assert taken.get(timeout=30) is None
    taker.join()


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_message_is_what_protobuf_makes_when_frames_are_joined(frames: list[bytes]) -> None:
    assert encode_frames(frames) == RaftFrames(frames=frames).SerializeToString()


def test_message_is_what_protobuf_makes_when_a_frame_is_large() -> None:
    frames = [b"x" * size for size in (127, 128, 16_383, 16_384, 2_097_152)]
    assert encode_frames(frames) == RaftFrames(frames=frames).SerializeToString()
