"""What the line hands its results to: publishes them, keeps them, answers commands, tells the node's state."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import zmq

from edge_app import clock
from edge_app.config.results import Results
from edge_app.errors import BusError, ConfigError
from edge_app.frame import Frame
from edge_app.results import selftest, wire
from edge_app.results.alarms import Alarm, Alarms, alarm_message
from edge_app.results.answers import Answers
from edge_app.results.archive import Archive
from edge_app.results.auth import LOCAL, Locks
from edge_app.results.bus import Answer, Bus, Message
from edge_app.results.commands import Handler
from edge_app.results.endpoint import check_endpoint
from edge_app.results.evidence import Evidence
from edge_app.results.identity import NodeIdentity, NodeStatus
from edge_app.results.journal import Journal
from edge_app.results.kernel_clock import clock_now
from edge_app.results.parts import Parts
from edge_app.results.record import Record
from edge_app.results.refusals import Refusals
from edge_app.results.replay import Replay
from edge_app.results.service import Service
from edge_app.results.sockets import Sockets
from edge_app.verdict import Mode, Placement, Sealed

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0
EVIDENCE_TIMEOUT_S = 0.3
STRANGERS_ALARM = (
    "connections are refused again and again: unknown keys, no keys, or garbage",
    "see the node's log for addresses; give the client a key, or find out who it is",
)
COMMANDS_ALARM = (
    "commands are refused again and again: not allowed, too many, or garbage",
    "see whose program it is; its role is in clients.toml",
)


class Outlet:
    """Everything that leaves the node. Each part may be absent: no wire, no journal, no pictures.

    Args:
        config: `results:` of the pipeline.
        identity: who this node is; changed by `identify`.
        status: how the line stands; called on the bus thread with each heartbeat.
        handlers: commands that touch the line, by name; they run on the bus thread and must return at once.
    """

    def __init__(
        self,
        config: Results,
        identity: NodeIdentity,
        status: Callable[[], NodeStatus],
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self._config = config
        self._identity = replace(identity, clock=clock_now())
        self._identifying = threading.Lock()
        self._status = status
        self._started_us = clock.monotonic_us()
        self._published_seq = 0
        self._dropped_seq = 0
        self._mode: Mode | None = None
        self._placement: Placement | None = None
        self._alarms = Alarms(self._send_alarm)
        self._strangers = Refusals(lambda active: self.alarm("CONNECTIONS_REFUSED", active, *STRANGERS_ALARM))
        self._bad_commands = Refusals(lambda active: self.alarm("COMMANDS_REFUSED", active, *COMMANDS_ALARM))
        self._parts = Parts()
        self._archive, self._works = Archive("archive"), Archive("commands")
        self._locks = Locks(config.security) if config.security.key is not None else None
        self._evidence = (
            Evidence(config.evidence, identity.epoch, self.alarm) if config.evidence.path is not None else None
        )
        make_room = self._evidence.make_room if self._evidence is not None else lambda: None
        self._journal = (
            Journal(config.journal, identity, self.alarm, make_room) if config.journal.path is not None else None
        )
        self._replay = Replay(self._journal, lambda: self._identity, lambda: self._last_seq)
        self._bus = self._make_bus(handlers or {}) if config.publish or config.commands else None

    def _make_bus(self, handlers: Mapping[str, Handler]) -> Bus:
        answers = Answers(lambda: self._identity, self._full_status, self._wire_fields, self._alarms, self._parts)
        gate = self._locks.gate if self._locks else None
        own = {**answers.handlers, "replay": self._replay.replay, "epochs": self._replay.epochs}
        if self._evidence is not None:
            own["image"] = self._evidence.image
        served = {**own, **handlers}
        if "trigger" in served:
            served["trigger"] = answers.naming(served["trigger"])
        service = Service(
            served,
            client=gate.client if gate else lambda _user: LOCAL,
            mode=lambda: str(self._status().mode),
            archive=self._archive,
            works=self._works,
            send=self._send_answer,
            turned_away=lambda: self._bad_commands.add(1, clock.monotonic_us()),
        )
        pair = self._locks.pair if self._locks else None
        return Bus(
            Sockets(self._config.publish, self._config.commands, pair, gate),
            gate,
            self._identity.node,
            self._beat,
            service.serve,
            self._published,
            self._refused,
        )

    def start(self) -> None:
        """Opens journal and wire; the epoch is on the disk before the first result.

        Raises:
            BusError: a port is in use, the wire's locks do not hold, or another node has the journal or the pictures.
            ConfigError: an endpoint is bad, or may not be bound.
        """
        for key, endpoint in (("publish", self._config.publish), ("commands", self._config.commands)):
            if endpoint is not None:
                check_endpoint(
                    endpoint,
                    key,
                    secured=self._locks is not None,
                    simulated=self._identity.simulated,
                    allow_simulated=self._config.allow_simulated_off_loopback,
                )
        if self._bus is not None:
            self._bus.sockets.open()
        try:
            if self._evidence is not None:
                self._evidence.start()
            if self._journal is not None:
                self._journal.start()
        except BusError:
            if self._evidence is not None:
                self._evidence.close(EVIDENCE_TIMEOUT_S)
            if self._bus is not None:
                self._bus.sockets.close()
            raise
        self._archive.start()
        self._works.start()
        if self._bus is not None:
            self._bus.start()
            self._prove_locks(self._bus)

    def _prove_locks(self, bus: Bus) -> None:
        """Refuses to start unless strangers are turned away."""
        if self._locks is None or bus.sockets.context is None:
            return
        kinds = {"publish": zmq.SUB, "commands": zmq.DEALER}
        places = {key: (end, kinds[key]) for key, end in bus.sockets.endpoints.items() if end is not None}
        self._strangers.expect(selftest.STRANGERS * len(places))
        self._locks.gate.testing = True
        try:
            selftest.prove_locks(bus.sockets.context, places, self._locks.pair.public, self._locks.own)
        except BusError:
            self.close("the wire's locks do not hold")
            raise
        self._locks.gate.testing = False

    def reload(self) -> None:
        """Reads clients.toml again (SIGHUP). A file that can't be used is an alarm; the old list stays in force."""
        if self._locks is None:
            return
        try:
            taken_off = self._locks.reload()
        except ConfigError as error:
            log.error("%s", error)
            text = f"{error.where}: {error.what}; the list that was read before stays in force"
            self.alarm("CLIENTS_INVALID", True, text, "correct the file, then send SIGHUP again")
            return
        self.alarm("CLIENTS_INVALID", False, "the list of clients is read again", "")
        if taken_off and self._bus is not None:
            self._bus.end_connections()

    @property
    def publish_endpoint(self) -> str | None:
        """Where PUB listens; with a port of `*`, the one that was given."""
        return self._bus.sockets.endpoints["publish"] if self._bus else None

    @property
    def commands_endpoint(self) -> str | None:
        """Where ROUTER listens."""
        return self._bus.sockets.endpoints["commands"] if self._bus else None

    @property
    def identity(self) -> NodeIdentity:
        """Who this node is, as its results say it now."""
        return self._identity

    @property
    def connections(self) -> dict[str, int]:
        """Peers that are connected: to PUB (`publish`) and to ROUTER (`commands`)."""
        return self._bus.sockets.connected if self._bus else {}

    def standing_alarms(self) -> list[Alarm]:
        """Alarms that stand now, the oldest first."""
        return self._alarms.active()

    def vitals(self) -> dict[str, Any]:
        """Seqs, journal, disk and wire, as heartbeats tell them. Quick; from any thread."""
        return self._wire_fields()

    @property
    def degraded(self) -> tuple[str, ...]:
        """What of the outlet is not as configured, for the results' `degraded`."""
        return ("journal_off",) if self._journal is not None and not self._journal.working else ()

    def result(self, sealed: Sealed) -> None:
        """Sends and keeps a sealed result. Called in seq order, by one thread at a time; returns within microseconds.

        A result without a part id gets the one that was announced for its trigger.

        Raises:
            BusError: the wire has died. The result is in the journal, if there is one.
        """
        announced = self._parts.take(sealed.trigger_id) if self._bus is not None else None
        part_id = sealed.part_id if sealed.part_id is not None else announced
        degraded = (*sealed.degraded, *self.degraded)
        record = Record(sealed, self._identity, part_id, degraded, self._image_of(sealed))
        if self._journal is not None:
            self._journal.put(record)
        if self._bus is None:
            return
        if self._bus.error is not None:
            remedy = "this is a bug: report it, with the log"
            raise BusError("the wire has died", got=repr(self._bus.error), remedy=remedy)
        if not self._bus.publish(record):
            self._dropped_seq = sealed.seq

    def _image_of(self, sealed: Sealed) -> Mapping[str, Any] | None:
        """A picture that fails never costs a result."""
        if self._evidence is None:
            return sealed.image
        try:
            return self._evidence.wants(sealed)
        except Exception as error:
            log.exception("no picture of result %d", sealed.seq)
            self.alarm("EVIDENCE_FAILED", True, f"{type(error).__name__}: {error}", "report it, with the log")
            return {"id": None, "state": "dropped"}

    def evidence(self, frame: Frame, give_back: Callable[[Frame], None]) -> bool:
        """Offers a frame after its result was sealed; never blocks.

        True: a picture of it will be written, and its pixels are held until `give_back(frame)` is called from another
        thread. False: the caller keeps the frame.
        """
        return self._evidence is not None and self._evidence.take(frame, give_back)

    def note(self, seq: int, text: str) -> None:
        """Keeps a remark on a result, e.g. the verdict that came after its seal. It is never published."""
        if self._journal is not None:
            self._journal.note(seq, text)

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        """Tells a change of mode or plan; a heartbeat follows at once."""
        self._mode, self._placement = mode, placement
        if self._bus is not None:
            body = wire.encode(wire.state(self._identity, clock.utc_us(), mode, was, placement, reason))
            self._bus.send(Message("state", body), then_beat=True)

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """Raises or clears an alarm; what is known already is not sent again."""
        self._alarms.set(name, active, text, remedy)

    def identify(self, **changes: Any) -> None:
        """Fields of NodeIdentity (recipe, model, ...) as results tell them from the next one on."""
        if frozen := {"node", "epoch", "simulated"} & set(changes):
            raise ValueError(f"{sorted(frozen)} can't change while a node runs")
        with self._identifying:  # the application's thread, and the bus's for the clock
            self._identity = replace(self._identity, **changes)

    def healthy(self, within_us: int = 3_000_000) -> bool:
        """Whether the bus goes round; without it, no watchdog should be fed."""
        if self._bus is None:
            return True
        return self._bus.alive and clock.monotonic_us() - self._bus.last_turn_us < within_us

    def close(self, reason: str = "clean stop") -> None:
        """Sends what waits, `state: STOPPED` with the reason last, writes what waits, and closes; about 1 s at most."""
        if self._bus is not None and self._bus.alive:
            status = self._status()
            was = self._mode or status.mode
            placement = self._placement or status.placement
            body = wire.encode(wire.state(self._identity, clock.utc_us(), Mode.STOPPED, was, placement, reason))
            self._bus.stop(Message("state", body), CLOSE_TIMEOUT_S)
        self._archive.close()
        self._works.close()
        if self._journal is not None:
            self._journal.close(CLOSE_TIMEOUT_S)
        if self._evidence is not None:
            self._evidence.close(EVIDENCE_TIMEOUT_S)

    @property
    def _last_seq(self) -> int:
        return max(self._published_seq, self._dropped_seq)

    def _published(self, record: Record) -> None:
        self._published_seq = record.seq
        if self._journal is not None:
            self._journal.wake()
        self._replay.tail.append(record.seq, record.body)

    def _send_answer(self, answer: Answer) -> None:
        if self._bus is not None:
            self._bus.send(answer)

    def _send_alarm(self, alarm: Alarm) -> None:
        if alarm.active:
            log.warning("alarm %s raised: %s", alarm.name, alarm.text)
        else:
            log.info("alarm %s cleared%s", alarm.name, f": {alarm.text}" if alarm.text else "")
        if self._bus is not None:
            self._bus.send(Message("alarm", wire.encode(alarm_message(self._identity, clock.utc_us(), alarm))))

    def _refused(self, count: int) -> None:
        if count:
            self._strangers.add(count, clock.monotonic_us())

    def _beat(self) -> bytes:
        self.identify(clock=clock_now())
        self._parts.forget_old()
        for refusals in (self._strangers, self._bad_commands):
            refusals.look(clock.monotonic_us())
        return wire.encode(wire.heartbeat(self._identity, self._full_status(), clock.utc_us(), self._wire_fields()))

    def _full_status(self) -> NodeStatus:
        """The line's status, with what the outlet itself lacks."""
        status = self._status()
        return replace(status, degraded=(*status.degraded, *self.degraded)) if self.degraded else status

    def _wire_fields(self) -> dict[str, Any]:
        journal, evidence = self._journal, self._evidence
        return {
            "last_seq": self._last_seq,
            "durable_seq": journal.durable_seq if journal else 0,
            "oldest_seq": self._replay.oldest_seq,
            "journal": journal is not None and journal.working,
            "disk": {
                "journal_bytes": journal.size_bytes if journal else None,
                "journal_lost": journal.lost if journal else 0,
                "evidence_bytes": evidence.bytes if evidence else None,
                "evidence_dropped": evidence.dropped if evidence else 0,
                "free_bytes": journal.free_bytes if journal else None,
            },
            "wire": {
                "dropped": self._bus.dropped if self._bus else 0,
                "connections_refused": self._strangers.count,
                "commands_refused": self._bad_commands.count,
                "unsent_replies": self._bus.unsent_replies if self._bus else 0,
            },
            "uptime_us": clock.monotonic_us() - self._started_us,
        }
