"""The messages of protocol v1, as they stand on the wire: topics, and UTF-8 JSON bodies.

JSON is written in ASCII (other characters as \\u escapes), so that no label, part id or text can make it fail or put
raw bytes into a reader's log. Times are integer microseconds UTC.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from edge_app.results.identity import NodeIdentity, NodeStatus
from edge_app.verdict import Mode, ModelIdentity, Placement, Sealed

VERSION = 1
KINDS = ("result", "heartbeat", "state", "alarm")
HEARTBEAT_PERIOD_US = 1_000_000
MAX_COMMAND_BYTES = 64 * 1024
MAX_REPLAY = 256

LIVE_MARK = b',"replayed":false,'
REPLAYED_MARK = b',"replayed":true,'


def topic(kind: str, node: str) -> bytes:
    """`v1/<kind>/<line>/<station>/`; the slash at the end keeps `st3` from matching `st30`."""
    return f"v{VERSION}/{kind}/{node}/".encode()


def _scalar(value: object) -> Any:
    """NumPy scalars (scores, boxes) as Python numbers."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{type(value).__name__} can't be sent")
    return item()


_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_scalar).encode


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as bytes. A number that is not finite is sent as null: it must not cost the message its life."""
    try:
        body = orjson.dumps(message, _scalar, orjson.OPT_PASSTHROUGH_DATACLASS)
        if body.isascii():
            return bytes(memoryview(body))  # a copy: orjson's own holds 8 KiB, and thousands of results are kept
    except orjson.JSONEncodeError:  # half a surrogate pair, a whole number of more than 64 bits, or a bug
        pass
    return _ascii(_finite(message)).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sched(placement: Placement) -> dict[str, Any]:
    """The scheduler's answer, as results, heartbeats and state messages carry it."""
    return {
        "plan": placement.plan,
        "power_mode": placement.power_mode,
        "rate": placement.rate,
        "reason": placement.reason,
        "zones_c": placement.zones_c,
    }


def result(
    sealed: Sealed,
    node: NodeIdentity,
    part_id: str | None,
    degraded: tuple[str, ...],
    image: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The `result` message. `image` says where its picture is; None: no picture is kept."""
    message: dict[str, Any] = {
        "v": VERSION,
        "kind": "result",
        "node": node.node,
        "epoch": node.epoch,
        "seq": sealed.seq,
        "trigger_id": sealed.trigger_id,
        "part_id": part_id,
        "frame_id": sealed.frame_id,
        "verdict": sealed.verdict,
        "reason": sealed.reason,
        "detail": sealed.detail,
        "t_capture_us": sealed.t_capture_us,
        "t_done_us": sealed.t_done_us,
        "deadline_us": sealed.deadline_us,
        "clock": {"source": node.clock.source, "err_us": node.clock.err_us},
        "stage_us": sealed.stage_us,
        "recipe": recipe(sealed, node),
        "model": model(sealed.model or node.model),
        "sched": sched(sealed.placement),
        "degraded": degraded,
        "simulated": node.simulated,
        "replayed": False,
        "software": node.software,
    }
    if sealed.classes is None:
        message["detections"] = [
            {"label": defect.label, "score": defect.score, "box_px": defect.box_px} for defect in sealed.defects
        ]
    else:
        message["classes"] = [{"label": label, "score": score} for label, score in sealed.classes]
        message["label"] = sealed.label
        message["stable_since_us"] = sealed.stable_since_us
    message["image"] = image
    return message


def recipe(sealed: Sealed, node: NodeIdentity) -> dict[str, str]:
    """The recipe that judged this part: a change of recipe does not touch parts that were in flight."""
    name, rev = sealed.recipe or (node.recipe.name, node.recipe.rev)
    return {"name": name, "rev": rev}


def model(identity: ModelIdentity) -> dict[str, str | None]:
    """Which model inspected a part; with `version` where it was pushed."""
    told = {"name": identity.name, "sha256": identity.sha256, "soc": identity.soc}
    return told if identity.version is None else {**told, "version": identity.version}


def as_replayed(body: bytes) -> bytes:
    """A result's body with `replayed` true, all else as it was sent.

    Inside a JSON string a quote is escaped, so the mark can stand only where the field is.
    """
    return body.replace(LIVE_MARK, REPLAYED_MARK, 1)


def counters(status: NodeStatus) -> dict[str, Any]:
    """Triggers and verdicts since the start of the epoch; frames too, where they are no triggers."""
    told = {
        "triggers": status.triggers,
        "pass": status.passed,
        "fail": status.failed,
        "unknown": dict(status.unknown),
    }
    return {**told, "frames": dict(status.frames)} if status.frames else told


def heartbeat(node: NodeIdentity, status: NodeStatus, t_us: int, wire: Mapping[str, Any]) -> dict[str, Any]:
    """The `heartbeat` message; `wire` is what the outlet knows: seqs, journal, disk, uptime."""
    return {
        "v": VERSION,
        "kind": "heartbeat",
        "node": node.node,
        "epoch": node.epoch,
        "t_us": t_us,
        "mode": status.mode,
        "ready": status.ready,
        "recipe": {"name": node.recipe.name, "rev": node.recipe.rev},
        "counters": counters(status),
        "queue_depth": status.queue_depth,
        "sched": sched(status.placement),
        "degraded": status.degraded,
        "simulated": node.simulated,
        "software": node.software,
        **wire,
    }


def state(node: NodeIdentity, t_us: int, mode: Mode, was: Mode, placement: Placement, reason: str) -> dict[str, Any]:
    """The `state` message: sent on every change of mode or plan."""
    return {
        "v": VERSION,
        "kind": "state",
        "node": node.node,
        "epoch": node.epoch,
        "t_us": t_us,
        "mode": mode,
        "was": was,
        "sched": sched(placement),
        "reason": reason,
    }
