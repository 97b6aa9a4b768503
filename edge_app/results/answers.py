"""What the results side answers itself: hello, status, describe, announce, ack_alarm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from edge_app import clock
from edge_app.results import wire
from edge_app.results.alarms import Alarms, alarm_fields
from edge_app.results.commands import COMMANDS, Code, Deferred, Handler, RefusedError, Reply, Request
from edge_app.results.identity import NodeIdentity, NodeStatus
from edge_app.results.parts import Parts
from edge_app.verdict import Mode, Reason, SchedReason, Verdict

log = logging.getLogger(__name__)


class Answers:
    """Handlers by command: `handlers`.

    Args:
        identity, status: of the node, as they stand.
        wire_fields: what the outlet adds to heartbeats.
    """

    def __init__(
        self,
        identity: Callable[[], NodeIdentity],
        status: Callable[[], NodeStatus],
        wire_fields: Callable[[], Mapping[str, Any]],
        alarms: Alarms,
        parts: Parts,
    ) -> None:
        self._identity = identity
        self._status = status
        self._wire_fields = wire_fields
        self._alarms = alarms
        self._parts = parts
        self.handlers: dict[str, Handler] = {
            "hello": self._hello,
            "status": self._node_status,
            "describe": self._describe,
            "announce": self._announce,
            "ack_alarm": self._ack_alarm,
        }

    def _hello(self, request: Request) -> Reply:
        node = self._identity()
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
                "client": request.client,
                "role": request.role.name.lower(),
            }
        )

    def _node_status(self, _request: Request) -> Reply:
        beat = wire.heartbeat(self._identity(), self._status(), clock.utc_us(), self._wire_fields())
        del beat["v"], beat["kind"]
        return Reply({**beat, "alarms": [alarm_fields(alarm) for alarm in self._alarms.active()]})

    def _describe(self, _request: Request) -> Reply:
        return Reply(
            {
                "description": self._identity().description,
                "commands": {
                    name: {"role": command.role.name.lower(), "what": command.what, "fields": list(command.arguments)}
                    for name, command in COMMANDS.items()
                },
                "verdicts": list(Verdict),
                "reasons": list(Reason),
                "sched_reasons": list(SchedReason),
                "codes": list(Code),
            }
        )

    def naming(self, trigger: Handler) -> Handler:
        """`trigger` as the line serves it, which may name the part as `announce` does: the two never contradict."""

        def serve(request: Request) -> Reply | Deferred:
            trigger_id, part_id = request.args["trigger_id"], request.args.get("part_id")
            new = part_id is not None and self._parts.announce(trigger_id, part_id)
            try:
                return trigger(request)
            except Exception:
                if new:
                    self._parts.withdraw(trigger_id)
                raise

        return serve

    def _announce(self, request: Request) -> Reply:
        self._parts.announce(request.args["trigger_id"], request.args["part_id"])
        return Reply(request.args)

    def _ack_alarm(self, request: Request) -> Reply:
        name = request.args["alarm"]
        if not self._alarms.acknowledge(name):
            raise RefusedError(Code.NOT_FOUND, "no such alarm stands")
        log.info("alarm %s acknowledged by %s", name, request.client)
        return Reply({"alarm": name})
