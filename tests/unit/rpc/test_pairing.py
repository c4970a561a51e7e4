"""A link made of two streams: when it is up, and which frames it delivers."""

from __future__ import annotations

import random

from tailrace.cluster.rpc.frames import FrameQueue, QueueLimits
from tailrace.cluster.rpc.pairing import LinkPair, PairEvents

LIMITS = QueueLimits(max_frames=3, max_bytes=100, max_batch_bytes=50)


class FakeStream:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.queue = FrameQueue(LIMITS)
        self.reasons: list[str] = []

    def abort(self, reason: str) -> None:
        self.reasons.append(reason)
        self.queue.close()


class Observed:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.pair = LinkPair(
            PairEvents(
                on_up=lambda: self.seen.append("up"),
                on_down=lambda reason: self.seen.append("down"),
                on_message=lambda frame: self.seen.append(frame.decode()),
            )
        )

    def up(self) -> tuple[FakeStream, FakeStream]:
        incoming, outgoing = FakeStream(), FakeStream()
        self.pair.attach_incoming(incoming)
        self.pair.attach_outgoing(outgoing)
        return incoming, outgoing


def test_link_is_up_only_when_both_streams_are_there() -> None:
    link = Observed()
    outgoing = FakeStream()
    link.pair.attach_outgoing(outgoing)
    assert not link.pair.send(b"a")
    assert link.seen == []
    incoming = FakeStream()
    link.pair.attach_incoming(incoming)
    assert link.seen == ["up"]
    assert link.pair.send(b"a")
    assert outgoing.queue.take() == [b"a"]
    assert link.pair.deliver(incoming, [b"b", b"c"], 0)
    assert link.seen == ["up", "b", "c"]


def test_other_stream_is_ended_when_one_ends() -> None:
    for ended in (0, 1):
        link = Observed()
        streams = link.up()
        link.pair.detach(streams[ended], "it broke")
        assert link.seen == ["up", "down"]
        assert streams[1 - ended].reasons == ["it broke"]
        assert streams[ended].reasons == []
        assert not link.pair.send(b"a")
        assert not link.pair.deliver(streams[0], [b"late"], 0)
        link.pair.detach(streams[1 - ended], "the other one too")
        assert link.seen == ["up", "down"]


def test_link_goes_down_and_up_when_a_new_stream_replaces_one() -> None:
    link = Observed()
    incoming, outgoing = link.up()
    newer = FakeStream()
    link.pair.attach_incoming(newer)
    assert link.seen == ["up", "down"]
    assert len(incoming.reasons) == len(outgoing.reasons) == 1
    assert not link.pair.deliver(incoming, [b"of before"], 0)
    link.pair.attach_outgoing(FakeStream())
    assert link.seen == ["up", "down", "up"]
    assert not link.pair.deliver(incoming, [b"of before"], 0)
    assert link.pair.deliver(newer, [b"new"], 0)
    assert link.seen == ["up", "down", "up", "new"]


def test_frames_are_given_up_when_the_link_does_not_come_up_in_time() -> None:
    link = Observed()
    incoming = FakeStream()
    link.pair.attach_incoming(incoming)
    assert not link.pair.deliver(incoming, [b"early"], 0.01)
    assert link.seen == []


def test_outgoing_stream_is_ended_when_its_queue_is_full() -> None:
    link = Observed()
    _, outgoing = link.up()
    assert [link.pair.send(b"x") for _ in range(4)] == [True, True, True, False]
    assert len(outgoing.reasons) == 1
    assert not link.pair.send(b"x")
    link.pair.detach(outgoing, "ended")
    assert link.seen == ["up", "down"]


def test_streams_are_ended_at_once_when_the_link_is_closed() -> None:
    link = Observed()
    streams = link.up()
    link.pair.close()
    assert link.seen == ["up", "down"]
    late = FakeStream()
    link.pair.attach_incoming(late)
    assert [len(stream.reasons) for stream in (*streams, late)] == [1, 1, 1]
    assert link.seen == ["up", "down"]


def test_link_delivers_only_what_its_current_stream_brings_in_any_order_of_events() -> None:
    """Random histories: up and down alternate, and frames are always of the stream that is attached."""
    for seed in range(300):
        chance = random.Random(seed)
        link = Observed()
        incoming: list[FakeStream] = []
        outgoing: list[FakeStream] = []
        for step in range(40):
            match chance.randrange(5):
                case 0:
                    incoming.append(FakeStream(f"{len(incoming)}"))
                    link.pair.attach_incoming(incoming[-1])
                case 1:
                    outgoing.append(FakeStream())
                    link.pair.attach_outgoing(outgoing[-1])
                case 2 if incoming:
                    link.pair.detach(chance.choice(incoming), "broke")
                case 3 if outgoing:
                    link.pair.detach(chance.choice(outgoing), "broke")
                case 4 if incoming:
                    stream = chance.choice(incoming)
                    link.pair.deliver(stream, [f"{stream.name}:{step}".encode()], 0)
        changes = [one for one in link.seen if one in ("up", "down")]
        assert changes == (["up", "down"] * 20)[: len(changes)], f"seed {seed}"
        newest_before, newest = -1, -1
        is_up = False
        for one in link.seen:
            if one == "up":
                is_up, newest_before = True, newest
            elif one == "down":
                is_up = False
            else:
                sender = int(one.partition(":")[0])
                assert is_up, f"seed {seed}"
                assert sender > newest_before, f"seed {seed}"
                newest = max(newest, sender)
