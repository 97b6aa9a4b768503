"""The client's dealings with one node, message by message, without sockets."""

from __future__ import annotations

import json
from typing import Any

from edge_app.client.follower import Start
from edge_app.client.session import MOST_BAD_ANSWERS, RESEND_US, Session

NODE = "l1/st1"


def heartbeat(last_seq: int) -> list[bytes]:
    body = {"v": 1, "kind": "heartbeat", "node": NODE, "epoch": "e2", "t_us": 1, "last_seq": last_seq}
    return [b"v1/heartbeat/l1/st1", json.dumps(body).encode()]


def asked(session: Session, now_us: int) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in session.due(now_us, connected=True)]


def test_a_node_whose_journal_gives_nonsense_is_not_waited_for() -> None:
    """Its list of runs was asked for anew each second, for ever, and no live result was handed over."""
    session = Session(NODE, Start.OLDEST, can_ask=True, max_age_us=10**12)
    now_us, answered = 0, 0
    for _ in range(10 * MOST_BAD_ANSWERS):
        now_us += RESEND_US // 2
        session.published(heartbeat(0), now_us)
        for request in asked(session, now_us):
            answer: dict[str, Any] = {"v": 1, "ok": True, "request_id": request["request_id"]}
            if request["command"] == "epochs":
                answered += 1
                answer["epochs"] = [{"epoch": "e1", "started_us": 1.5}]
            else:
                answer.update(t_us=now_us, epoch="e2")
            session.replied([json.dumps(answer).encode()], now_us)
    assert answered == MOST_BAD_ANSWERS
    assert session.bad_messages == MOST_BAD_ANSWERS
    assert session.follower.epoch == "e2", "the live run is followed"
