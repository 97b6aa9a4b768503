"""What the line hands its results to: publishes, answers commands, tells the node's state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edge_app import clock
from edge_app.config.results import Results
from edge_app.results import wire
from edge_app.results.alarms import Alarm, Alarms, alarm_fields, alarm_message
from edge_app.results.bus import Bus, Message
from edge_app.results.commands import COMMANDS, Code, Handler, RefusedError, Reply, Request
from edge_app.results.endpoint import check_endpoint
from edge_app.results.identity import ModelIdentity, NodeIdentity, NodeStatus, Recipe
from edge_app.results.record import Record
from edge_app.results.service import Service
from edge_app.verdict import Mode, Placement, Reason, Sealed, Verdict

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0


class Outlet:
    """Everything that leaves the node.

    Args:
        config: `results:` of the pipeline.
        identity: who this node is; replaced by `identify`.
        status: how the line stands; called on the bus thread with each heartbeat.
        handlers: commands that touch the line, by name.
    """

    def __init__(
        self,
        config: Results,
        identity: NodeIdentity,
        status: Callable[[], NodeStatus],
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self._config = config
        self._identity = identity
        self._status = status
        self._started_us = clock.monotonic_us()
        self._published_seq = 0
        self._dropped_seq = 0
        self._mode: Mode | None = None
        self._placement: Placement | None = None
        self._alarms = Alarms(self._send_alarm)
        own: dict[str, Handler] = {
            "hello": self._hello,
            "status": self._status_command,
            "describe": self._describe,
            "ack_alarm": self._ack_alarm,
        }
        self._service = Service({**own, **(handlers or {})}, lambda: str(self._status().mode))
        self._bus = (
            Bus(config.publish, config.commands, identity.node, self._beat, self._service.serve, self._published)
            if config.publish is not None or config.commands is not None
            else None
        )

    def start(self) -> None:
        """Opens the wire.

        Raises:
            BusError: a port is in use.
            ConfigError: an endpoint is bad, or may not be bound.
        """
        if self._bus is None:
            return
        for key, endpoint in (("publish", self._config.publish), ("commands", self._config.commands)):
            if endpoint is not None:
                check_endpoint(
                    endpoint,
                    key,
                    secured=False,
                    simulated=self._identity.simulated,
                    allow_simulated=self._config.allow_simulated_off_loopback,
                )
        self._bus.start()

    @property
    def publish_endpoint(self) -> str | None:
        """Where PUB listens; with a port of `*`, the one that was given."""
        return self._bus.endpoints["publish"] if self._bus else None

    @property
    def commands_endpoint(self) -> str | None:
        """Where ROUTER listens."""
        return self._bus.endpoints["commands"] if self._bus else None

    def result(self, sealed: Sealed) -> None:
        """Sends a sealed result. Called in seq order, by one thread at a time; returns within microseconds."""
        record = Record(sealed, self._identity, sealed.image)
        if self._bus is not None and not self._bus.publish(record):
            self._dropped_seq = sealed.seq

    def state(self, mode: Mode, was: Mode, placement: Placement, reason: str) -> None:
        """Tells a change of mode or plan; a heartbeat follows at once."""
        self._mode, self._placement = mode, placement
        if self._bus is not None:
            body = wire.encode(wire.state(self._identity, clock.utc_us(), mode, was, placement, reason))
            self._bus.send(Message("state", body), then_beat=True)

    def alarm(self, name: str, active: bool, text: str, remedy: str) -> None:
        """Raises or clears an alarm; what is known already is not sent again."""
        self._alarms.set(name, active, text, remedy)

    def identify(
        self, *, recipe: Recipe | None = None, model: ModelIdentity | None = None, **changes: Any
    ) -> None:
        """What results say of recipe, model, clock or recipes from the next one on."""
        if recipe is not None:
            changes["recipe"] = recipe
        if model is not None:
            changes["model"] = model
        self._identity = replace(self._identity, **changes)

    def healthy(self, within_us: int = 3_000_000) -> bool:
        """Whether the bus goes round; without it, no watchdog should be fed."""
        if self._bus is None:
            return True
        return self._bus.alive and clock.monotonic_us() - self._bus.last_turn_us < within_us

    def close(self, reason: str = "clean stop") -> None:
        """Sends what waits, `state: STOPPED` with the reason last, and closes; within 1 s."""
        if self._bus is None or not self._bus.alive:
            return
        status = self._status()
        was = self._mode or status.mode
        placement = self._placement or status.placement
        body = wire.encode(wire.state(self._identity, clock.utc_us(), Mode.STOPPED, was, placement, reason))
        self._bus.stop(Message("state", body), CLOSE_TIMEOUT_S)

    def _published(self, record: Record) -> None:
        self._published_seq = record.seq

    def _send_alarm(self, alarm: Alarm) -> None:
        log.warning("alarm %s %s: %s", alarm.name, "raised" if alarm.active else "cleared", alarm.text)
        if self._bus is not None:
            self._bus.send(Message("alarm", wire.encode(alarm_message(self._identity, clock.utc_us(), alarm))))

    def _beat(self) -> bytes:
        return wire.encode(wire.heartbeat(self._identity, self._status(), clock.utc_us(), self._wire_fields()))

    def _wire_fields(self) -> dict[str, Any]:
        return {
            "last_seq": max(self._published_seq, self._dropped_seq),
            "durable_seq": 0,
            "oldest_seq": None,
            "journal": False,
            "disk": None,
            "wire": {"dropped": self._bus.dropped if self._bus else 0, "refused": self._service.refused},
            "uptime_us": clock.monotonic_us() - self._started_us,
        }

    def _hello(self, _request: Request) -> Reply:
        node = self._identity
        return Reply(
            {
                "versions": [wire.VERSION],
                "node": node.node,
                "epoch": node.epoch,
                "software": node.software,
                "t_us": clock.utc_us(),
                "mode": self._status().mode,
                "modes": list(Mode),
                "topics": {kind: wire.topic(kind, node.node).decode() for kind in wire.KINDS},
                "limits": {
                    "command_bytes": wire.MAX_COMMAND_BYTES,
                    "replay": wire.MAX_REPLAY,
                    "heartbeat_us": wire.HEARTBEAT_PERIOD_US,
                },
                "recipe": {"name": node.recipe.name, "rev": node.recipe.rev},
                "recipes": [{"name": recipe.name, "rev": recipe.rev} for recipe in node.recipes or (node.recipe,)],
                "simulated": node.simulated,
            }
        )

    def _status_command(self, _request: Request) -> Reply:
        beat = wire.heartbeat(self._identity, self._status(), clock.utc_us(), self._wire_fields())
        del beat["kind"]
        return Reply({**beat, "alarms": [alarm_fields(alarm) for alarm in self._alarms.active()]})

    def _describe(self, _request: Request) -> Reply:
        return Reply(
            {
                "description": self._identity.description,
                "commands": {
                    name: {"role": command.role.name.lower(), "what": command.what, "fields": list(command.arguments)}
                    for name, command in COMMANDS.items()
                },
                "verdicts": list(Verdict),
                "reasons": list(Reason),
                "codes": list(Code),
            }
        )

    def _ack_alarm(self, request: Request) -> Reply:
        name = request.args["alarm"]
        if not self._alarms.acknowledge(name):
            raise RefusedError(Code.NOT_FOUND, "no such alarm stands")
        log.info("alarm %s acknowledged by %s", name, request.client)
        return Reply({"alarm": name})
