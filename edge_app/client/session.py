"""One node as a client has it: what was received goes in, what is to be sent and handed over comes out. No sockets."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_app.client.follower import Follower, WantEpochs, WantReplay
from edge_app.client.liveness import PROBE_AGAIN_US, PROBE_EVERY_US, Liveness, NodeClock
from edge_app.client.messages import BadMessage, Delivery, Position, Result, Start, check_result, make_result, required

REPLAY_LIMIT = 256
ENOUGH_READY = 256
"""No further batch is asked for while so many results wait to be taken: the program's pace is the replay's."""
RESEND_US = 1_000_000
BUSY_PAUSE_US = 100_000
REOPEN_US = 5_000_000
NEVER_US = 2**63
GIVE_UP_US = 10_000_000
"""A node that beats but does not answer for so long can't replay: what is missing is counted as lost."""

MOST_BAD_ANSWERS = 5
"""One after the other; then what was asked for counts as lost, or a node with a damaged journal would be waited for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered: the reply's fields, and the second frame (a picture) if there was one."""

    fields: Mapping[str, Any]
    blob: bytes | None


@dataclass
class _Asked:
    """A request that waits for its answer."""

    request_id: str
    frame: bytes
    first_us: int
    next_us: int
    sent_us: int = 0
    own: WantReplay | WantEpochs | None = None
    probe: bool = False
    not_after_us: int = NEVER_US
    """It is not sent later than this: a trigger that is late would be of another part."""


class Session:
    """Follows one node.

    Args:
        node: `line/station`; None: the first that is heard.
        start: see Follower.
        can_ask: there is a commands endpoint.
        max_age_us: an older result is STALE.
    """

    def __init__(self, node: str | None, start: Position | Start, *, can_ask: bool, max_age_us: int) -> None:
        self.node = node
        self.follower = Follower(start, can_replay=can_ask)
        self.liveness = Liveness()
        self.clock = NodeClock()
        self.heartbeat: Mapping[str, Any] | None = None
        """The last one."""
        self.events: list[Mapping[str, Any]] = []
        """`state` and `alarm` messages that nobody has taken yet; at most 1000, the oldest go."""
        self.bad_messages = 0
        self._bad_answers = 0
        """One after the other, to questions of its own."""
        self._can_ask = can_ask
        self._max_age_us = max_age_us
        self._prefix = secrets.token_hex(8)
        self._count = 0
        self._asked: dict[str, _Asked] = {}
        self._answers: dict[str, Answer] = {}
        self._next_probe_us = 0
        self._not_before_us = 0
        self._silent_us: int | None = None

    # -- in ---------------------------------------------------------------------------------------------------------

    def published(self, frames: Sequence[bytes], now_us: int) -> None:
        """A message from PUB: topic and body; further frames are ignored."""
        try:
            data = _json_object(frames[1] if len(frames) > 1 else b"")
            kind, node = required(data, "kind", str), required(data, "node", str)
            if data.get("v") != 1 or self.node not in (None, node):
                raise BadMessage("another version or node")
            if kind == "result":
                check_result(data)
                self.node = node
                self._alive(self.follower.live(data), None, now_us)
            elif kind == "heartbeat":
                epoch, last_seq = required(data, "epoch", str), required(data, "last_seq", int)
                t_us = required(data, "t_us", int)
                self.node = node
                if self._alive(self.follower.heartbeat(epoch, last_seq), data, now_us):
                    self._look_at_clock(t_us, now_us)
            else:
                self.events = [*self.events[-999:], data]
        except BadMessage:
            self.bad_messages += 1

    def _alive(self, followed: bool, heartbeat: Mapping[str, Any] | None, now_us: int) -> bool:
        if not followed:
            self.liveness.ghost(now_us)
        elif heartbeat is not None:
            self.liveness.beat(now_us)
            self.heartbeat = heartbeat
        return followed

    def _look_at_clock(self, t_us: int, now_us: int) -> None:
        """A heartbeat that does not fit the node's clock as we know it: the clock was set. Ask again soon."""
        if self.clock.known and abs(self.clock.utc_us(now_us, 0) - t_us) > self._max_age_us // 2:
            self._next_probe_us = min(self._next_probe_us, now_us + PROBE_AGAIN_US)

    def replied(self, frames: Sequence[bytes], now_us: int) -> None:
        """A message from ROUTER: JSON, and a picture for `image`."""
        try:
            data = _json_object(frames[0] if frames else b"")
            request_id = required(data, "request_id", str)
            ok = required(data, "ok", bool)
        except BadMessage:
            self.bad_messages += 1
            return
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return  # the answer to a question that was asked twice
        if not ok and data.get("code") == "BUSY":
            asked.next_us = now_us + BUSY_PAUSE_US
            self._asked[request_id] = asked
            return
        try:
            if asked.probe:
                self._said_hello(asked, data, now_us)
            elif asked.own is None:
                self._answers[request_id] = Answer(data, frames[1] if len(frames) > 1 else None)
            elif ok:
                self._served(asked.own, data)
            else:
                self._refused(asked.own, data)
        except BadMessage:
            self.bad_messages += 1
            self._not_before_us = now_us + RESEND_US
            self._bad_answers += asked.own is not None
            if asked.own is not None and self._bad_answers >= MOST_BAD_ANSWERS:
                self._bad_answers = 0
                self._refused(asked.own, {})  # it is not to be had: what follows must not wait for it
        else:
            if asked.own is not None:
                self._bad_answers = 0

    def _said_hello(self, asked: _Asked, data: Mapping[str, Any], now_us: int) -> None:
        """A hello tells the node's time, and is as good as a heartbeat of the run that it names."""
        self.clock.sample(asked.sent_us, now_us, required(data, "t_us", int))
        if self.follower.live_epoch in (None, data.get("epoch")):
            self.liveness.beat(now_us)

    def _served(self, want: WantReplay | WantEpochs, data: Mapping[str, Any]) -> None:
        if isinstance(want, WantEpochs):
            runs = required(data, "epochs", list)
            self.follower.epochs([(required(run, "epoch", str), required(run, "started_us", int)) for run in runs])
            return
        results = required(data, "results", list)
        for result in results:
            check_result(result)
            if result["epoch"] != want.epoch:
                raise BadMessage(f"a result of another run: wanted {want.epoch}, got {result['epoch']}")
        more, last_seq = required(data, "more", bool), required(data, "last_seq", int)
        self.follower.replayed(want.epoch, results, more=more, last_seq=last_seq)

    def _refused(self, want: WantReplay | WantEpochs, data: Mapping[str, Any]) -> None:
        if isinstance(want, WantEpochs):
            self.follower.epochs([])
            return
        oldest = data.get("oldest_seq") if data.get("code") == "GONE" else None
        self.follower.gone(want.epoch, oldest if isinstance(oldest, int) else None)

    # -- out --------------------------------------------------------------------------------------------------------

    def request(self, command: str, fields: Mapping[str, Any], now_us: int) -> str:
        """Asks the node; `answer` has the reply when it is there. It is sent again until then, which is harmless.

        But for a trigger: once its `budget_us` is over the node would take a picture of whatever stands there by then,
        with a new budget. So it is not sent (again) after that, and may stay without an answer; and it says when it
        was wanted, for it may be held up on its way.
        """
        t_us = self.clock.latest_utc_us(now_us)
        if command == "trigger" and t_us is not None:
            fields = {"t_us": t_us, **fields}
        asked = self._ask(command, fields, now_us)
        if command == "trigger" and isinstance(fields.get("budget_us"), int):
            asked.not_after_us = now_us + fields["budget_us"]
        return asked.request_id

    def answer(self, request_id: str) -> Answer | None:
        """The reply to a request, once."""
        return self._answers.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """Nobody waits for this answer any more: it is not asked for again."""
        self._asked.pop(request_id, None)
        self._answers.pop(request_id, None)

    def _ask(self, command: str, fields: Mapping[str, Any], now_us: int) -> _Asked:
        self._count += 1
        request_id = f"{self._prefix}-{self._count}"
        frame = json.dumps({"v": 1, "command": command, "request_id": request_id, **fields}).encode()
        asked = self._asked[request_id] = _Asked(request_id, frame, now_us, now_us)
        return asked

    def due(self, now_us: int, *, connected: bool) -> list[bytes]:
        """Frames to send now, for the first time or again; none while there is no connection."""
        if not self._can_ask:
            return []
        self._want(now_us)
        if not connected:
            return []
        frames = []
        for asked in self._asked.values():
            if asked.not_after_us < now_us:
                asked.next_us = NEVER_US
            if asked.next_us <= now_us:
                frames.append(asked.frame)
                # A probe is not repeated: its answer would not tell which of the two it answers.
                asked.sent_us, asked.next_us = now_us, NEVER_US if asked.probe else now_us + RESEND_US
        return frames

    def _want(self, now_us: int) -> None:
        if now_us >= self._next_probe_us:
            for probe in [asked for asked in self._asked.values() if asked.probe]:
                del self._asked[probe.request_id]  # an old question would measure a long way
            self._ask("hello", {}, now_us).probe = True
            self._next_probe_us = now_us + (PROBE_EVERY_US if self.clock.known else PROBE_AGAIN_US)
        self._give_up(now_us)
        if any(asked.own is not None for asked in self._asked.values()):
            return
        want = self.follower.want() if len(self.follower.ready) < ENOUGH_READY else None
        if want is None or now_us < self._not_before_us:
            return
        if isinstance(want, WantEpochs):
            self._ask("epochs", {}, now_us).own = want
        else:
            fields = {"epoch": want.epoch, "after_seq": want.after_seq, "limit": REPLAY_LIMIT}
            self._ask("replay", fields, now_us).own = want

    def _give_up(self, now_us: int) -> None:
        """The node beats but does not answer: its results must not be held up for ever."""
        if self.liveness.fault(now_us) is not None:
            for asked in self._asked.values():
                asked.first_us = now_us
            return
        for asked in [a for a in self._asked.values() if a.own is not None and now_us - a.first_us > GIVE_UP_US]:
            del self._asked[asked.request_id]
            assert asked.own is not None
            self._refused(asked.own, {})

    def wants_new_sockets(self, now_us: int) -> bool:
        """Whether the sockets should be made anew: libzmq does not try again where it was once refused."""
        if self.liveness.fault(now_us) is None:
            self._silent_us = None
        elif self._silent_us is None:
            self._silent_us = now_us  # seen from here on: a program that did not look has missed nothing yet
        elif now_us - self._silent_us > REOPEN_US:
            self._silent_us = None
            return True
        return False

    def next_due_us(self, now_us: int) -> int:
        """When `due` should be asked again (monotonic)."""
        if not self._can_ask:
            return now_us + RESEND_US
        return min([self._next_probe_us, *(asked.next_us for asked in self._asked.values())])

    def take(self, now_us: int, own_utc_us: int) -> Result | None:
        """The next result whose turn it is."""
        if not self.follower.ready:
            return None
        due = self.follower.ready.popleft()
        age_us = self.clock.utc_us(now_us, own_utc_us) - due.message["t_done_us"]
        if due.replayed:
            delivery = Delivery.REPLAYED
        elif abs(age_us) > self._max_age_us or self.liveness.fault(now_us) is not None:
            delivery = Delivery.STALE
        else:
            delivery = Delivery.LIVE
        return make_result(due.message, delivery, age_us, due.lost_before)


def _json_object(frame: bytes) -> dict[str, Any]:
    try:
        data = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise BadMessage("not JSON") from error
    if not isinstance(data, dict):
        raise BadMessage("not an object")
    return data
