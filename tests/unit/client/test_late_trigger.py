"""A trigger whose time is over is not sent: the picture would be of another part, and its PASS told as in time."""

from __future__ import annotations

import json

import pytest
from nodes import free_port
from wire_samples import Line as Sealing
from wire_samples import config, outlet, until

from edge_app.client import Line, NoAnswer
from edge_app.client.messages import Start
from edge_app.client.session import Session
from edge_app.results import Reply, Request

PATIENCE_S = 40.0


def test_a_node_that_comes_later_takes_no_picture_for_it() -> None:
    publish, commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    taken: list[int] = []

    def trigger(request: Request) -> Reply:
        taken.append(request.args["trigger_id"])
        return Reply({})

    node = outlet(Sealing(), {"trigger": trigger}, results=config(publish=publish, commands=commands))
    with Line(publish, commands) as line:
        late = line._ask("trigger", {"trigger_id": 1, "budget_us": 50_000})  # as `command` does, and it waits on
        line.next(0.2)
        node.start()
        try:
            until(lambda: line.next(0.05) is None and line.fault is None)
            line.command("hello", timeout_s=PATIENCE_S)
            line.command("trigger", timeout_s=PATIENCE_S, trigger_id=2, budget_us=60_000_000)
            assert taken == [2]
            with pytest.raises(NoAnswer):
                line._answered("trigger", line._session.answer(late), 0.2)
        finally:
            node.close()


def test_it_is_not_repeated_either() -> None:
    session = Session(None, Start.NOW, can_ask=True, max_age_us=1_000_000)

    def sent(now_us: int) -> list[str]:
        return [
            told["command"] for frame in session.due(now_us, connected=True)
            if (told := json.loads(frame))["command"] != "hello"
        ]  # fmt: skip

    budget = {"trigger_id": 1, "budget_us": 1_500_000}
    request_id = session.request("trigger", budget, 0)
    session.request("status", {}, 0)
    assert sent(0) == ["trigger", "status"]
    assert sent(1_000_000) == ["trigger", "status"], "within its budget it is the same trigger yet"
    busy = {"v": 1, "request_id": request_id, "ok": False, "code": "BUSY"}
    session.replied([json.dumps(busy).encode()], 1_450_000)
    assert sent(2_000_000) == ["status"]
    session.replied([json.dumps({"v": 1, "request_id": request_id, "ok": True}).encode()], 2_100_000)
    answer = session.answer(request_id)
    assert answer is not None, "an answer that comes late is one"
    assert answer.fields["ok"] is True
