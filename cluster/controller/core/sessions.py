"""Which brokers are there: the active controller's memory of heartbeats.

Not part of the image, and not agreed on: whoever becomes the active controller makes a new one, in which
every broker that was not fenced has a full session timeout to come. Nothing here reads a clock or calls
anyone; what is to be done comes back as values (`Probe`, `SessionOver`), and the caller tells what came of
it.

A session ends when a broker was silent for the session timeout. When its connection breaks, the caller is to
ask it at once whether it is still there (a probe): a process that was killed is found out in a moment, and
one that answers has the rest of its session timeout to come back.

Silence counts only as far as this controller was there to hear it. Between two calls at most one heartbeat
interval counts, so a controller that was stopped for a minute does not fence every broker when it goes on.
The caller therefore calls `due` at `wake_at_ms`, although nothing may have ended by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tailrace.cluster.common.image import ClusterImage

DEFAULT_SESSION_TIMEOUT_MS = 9_000
DEFAULT_HEARTBEAT_INTERVAL_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimes:
    """broker.session.timeout.ms and broker.heartbeat.interval.ms."""

    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = DEFAULT_HEARTBEAT_INTERVAL_MS


class Probe(NamedTuple):
    """Ask the process with this registration whether it is there. Another process at its address, of another
    epoch, counts as nobody."""

    broker_id: int
    broker_epoch: int
    # Tells this probe from others of the same broker: what came of an old one changes nothing.
    number: int


class SessionOver(NamedTuple):
    """Fence the broker, unless it has registered anew (`brokers.fence_brokers`)."""

    broker_id: int
    broker_epoch: int
    reason: str


@dataclass(slots=True)
class _Session:
    epoch: int
    # On the clock of heard time.
    deadline_ms: int
    probe_number: int = 0


class BrokerSessions:
    def __init__(self, image: ClusterImage, *, times: SessionTimes, now_ms: int) -> None:
        """The controller has become active with this image."""
        self._times = times
        self._now_ms = now_ms
        self._heard_ms = 0
        self._probes = 0
        # A broker that was registered before has replayed its registration once it has replayed this.
        self._version_at_start = image.version
        self._versions: dict[int, int] = {}
        self._sessions = {
            broker.broker_id: _Session(broker.epoch, times.session_timeout_ms)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def registered(self, broker_id: int, broker_epoch: int, version: int, *, now_ms: int) -> None:
        """A registration was committed as part of this version."""
        self._versions[broker_id] = version
        self.touched(broker_id, broker_epoch, now_ms=now_ms)

    def touched(self, broker_id: int, broker_epoch: int, *, now_ms: int) -> None:
        """A heartbeat of the current registration came in."""
        self._listen(now_ms)
        session = self._sessions.get(broker_id)
        if session is not None and broker_epoch < session.epoch:
            return
        deadline = self._heard_ms + self._times.session_timeout_ms
        self._sessions[broker_id] = _Session(broker_epoch, deadline)

    def unregistered(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)
        self._versions.pop(broker_id, None)

    def registered_version(self, broker_id: int) -> int:
        """A version from which on the broker's current registration is in the metadata."""
        return self._versions.get(broker_id, self._version_at_start)

    def alive(self, broker_id: int, *, now_ms: int) -> bool:
        self._listen(now_ms)
        session = self._sessions.get(broker_id)
        return session is not None and session.deadline_ms > self._heard_ms

    def connection_lost(
        self, broker_id: int, *, now_ms: int, broker_epoch: int | None = None
    ) -> Probe | None:
        """`broker_epoch` tells of which registration the connection was; None stands for the current one.

        Also to be called when another process wants to register with the id of a broker that is alive: it may
        be the same one, started again before this controller noticed that the first was gone.
        """
        self._listen(now_ms)
        session = self._sessions.get(broker_id)
        if session is None or broker_epoch not in (None, session.epoch):
            return None
        self._probes += 1
        session.probe_number = self._probes
        return Probe(broker_id, session.epoch, self._probes)

    def probe_answered(self, probe: Probe) -> None:
        """It is there, and will connect again or not; the session timeout goes on."""
        session = self._sessions.get(probe.broker_id)
        if session is not None and session.probe_number == probe.number:
            session.probe_number = 0

    def probe_failed(self, probe: Probe) -> SessionOver | None:
        """Nobody is there. None when a heartbeat has come since, or a later probe is on its way."""
        session = self._sessions.get(probe.broker_id)
        if session is None or session.probe_number != probe.number:
            return None
        del self._sessions[probe.broker_id]
        return SessionOver(probe.broker_id, session.epoch, "its connection broke and nobody answers there")

    def due(self, *, now_ms: int) -> list[SessionOver]:
        """Sessions that ended by silence, those first that ended first. Each is told once."""
        self._listen(now_ms)
        ended = sorted(
            (session.deadline_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if session.deadline_ms <= self._heard_ms
        )
        timeout = self._times.session_timeout_ms
        return [
            SessionOver(broker_id, self._sessions.pop(broker_id).epoch, f"it was silent for {timeout} ms")
            for _, broker_id in ended
        ]

    def wake_at_ms(self) -> int | None:
        """When to call `due`, at the latest; None while there is no session."""
        if not self._sessions:
            return None
        earliest = min(session.deadline_ms for session in self._sessions.values())
        # Twice in an interval, so that a call that comes a little late still counts all of the silence.
        look_again = max(1, self._times.heartbeat_interval_ms // 2)
        return self._now_ms + min(max(0, earliest - self._heard_ms), look_again)

    def _listen(self, now_ms: int) -> None:
        passed = max(0, now_ms - self._now_ms)
        self._heard_ms += min(passed, self._times.heartbeat_interval_ms)
        self._now_ms = max(now_ms, self._now_ms)
