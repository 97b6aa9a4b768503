"""Commands that touch the line, over real sockets to a real node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import pytest
import toys
import zmq
from nodes import free_port
from wire_samples import until

from edge_app import clock

PATIENCE_MS = 60_000
"""A busy machine is no reason to fail."""


class Controller:
    """A DEALER and a SUB at one node."""

    def __init__(self, context: zmq.Context[Any], publish: str, commands: str) -> None:
        self._dealer = context.socket(zmq.DEALER)
        self._dealer.connect(commands)
        self._sub = context.socket(zmq.SUB)
        self._sub.subscribe(b"v1/")
        self._sub.connect(publish)
        self._count = 0
        self.cut_power: Callable[[], None] = lambda: None
        """SIGKILL, and another start."""

    def ask(self, command: str, **fields: object) -> dict[str, Any]:
        self._count += 1
        self._dealer.send_json({"request_id": f"r{self._count}", **fields, "command": command})
        assert self._dealer.poll(PATIENCE_MS), f"no reply to {command}"
        reply: dict[str, Any] = json.loads(self._dealer.recv_multipart()[-1])
        return reply

    def heard(self, kind: str, timeout_ms: float = PATIENCE_MS) -> dict[str, Any] | None:
        """The next message of a kind; None if none came in time."""
        end = time.monotonic() + timeout_ms / 1000
        while self._sub.poll(max(0, (end - time.monotonic()) * 1000)):
            message: dict[str, Any] = json.loads(self._sub.recv_multipart()[1])
            if message["kind"] == kind:
                return message
        return None

    def result(self) -> dict[str, Any]:
        message = self.heard("result")
        assert message is not None, "no result came"
        return message

    def quiet(self) -> bool:
        return self.heard("result", 300) is None

    def close(self) -> None:
        self._dealer.close(0)
        self._sub.close(0)


@pytest.fixture
def node(tmp_path: Path, toy_model: Path) -> Iterator[Controller]:
    """A node whose line waits for triggers; its pictures are good and bad in turn."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(20):
        cells = [(2, 2)] if number % 2 else []
        cv2.imwrite(str(folder / f"part{number:02}.png"), toys.detector_picture(cells, seed=number))
    (tmp_path / "lenient.yaml").write_text("judge: {classes: {bright: {max_count: 5}}}\n")
    context = zmq.Context()
    publish, commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    (tmp_path / "line.yaml").write_text(f"""\
camera: {{type: folder, path: pictures, loop: true}}
model: {{path: {toy_model}}}
runtime: {{provider: cpu}}
recipes: {{lenient: lenient.yaml}}
results: {{publish: "{publish}", commands: "{commands}"}}
limits: {{pacing: realtime, deadline_ms: 60000, trigger: software}}
""")
    controller = Controller(context, publish, commands)

    def start() -> None:
        nonlocal process
        command = [sys.executable, "-P", "-m", "edge_app", "--pipeline", "line.yaml"]
        process = subprocess.Popen(command, cwd=tmp_path)
        until(lambda: controller.ask("status").get("mode") == "RUNNING")
        assert controller.heard("heartbeat") is not None, "the subscription has arrived"

    def cut_power() -> None:
        assert process is not None
        process.kill()
        process.wait()
        start()

    process: subprocess.Popen[bytes] | None = None
    controller.cut_power = cut_power
    try:
        start()
        yield controller
    finally:
        assert process is not None
        process.terminate()
        controller.close()
        context.destroy(0)
        assert process.wait(60) == 0


def test_a_trigger_has_its_result_part_and_deadline(node: Controller) -> None:
    assert node.quiet(), "nothing is inspected without a trigger"
    asked_us = clock.utc_us()
    assert node.ask("trigger", trigger_id=7, part_id="A-7", budget_us=40_000_000)["ok"]
    answered_us = clock.utc_us()
    result = node.result()
    assert (result["trigger_id"], result["part_id"], result["verdict"], result["frame_id"]) == (7, "A-7", "PASS", 1)
    assert asked_us - 1000 <= result["deadline_us"] - 40_000_000 <= answered_us + 1000, "from the trigger on"
    assert node.ask("trigger", trigger_id=8)["ok"]
    assert node.result()["reason"] == "DEFECT"


def test_trigger_ids_rise_and_a_late_one_is_late(node: Controller) -> None:
    assert node.ask("trigger", trigger_id=5, budget_us=1)["ok"]
    assert node.result()["reason"] == "LATE"
    reply = node.ask("trigger", trigger_id=5)
    assert (reply["ok"], reply["code"]) == (False, "CONFLICT")
    assert reply["message"].startswith("trigger ids must rise: wanted above 5; ")
    assert node.quiet()
    refused = node.ask("trigger", trigger_id=2**53 - 1)
    assert (refused["code"], refused["message"]) == (
        "BAD_REQUEST", "trigger_id: wanted a whole number from 0 to 9007194959773696"
    )  # fmt: skip
    assert node.ask("trigger", trigger_id=6)["ok"], "a slip does not end the run's ids"


def test_every_trigger_has_one_result_of_its_part_and_the_counts_add_up(node: Controller) -> None:
    """Parts named by the trigger, or announced before it; each trigger sent twice, as a program does that is unsure."""
    parts = {trigger_id: f"P-{trigger_id}" for trigger_id in range(1, 61)}
    for trigger_id, part_id in parts.items():
        named = trigger_id % 2 == 0
        if not named:
            assert node.ask("announce", trigger_id=trigger_id, part_id=part_id)["ok"]
            other = node.ask("trigger", trigger_id=trigger_id, part_id="another")
            assert other["code"] == "CONFLICT", "it was announced as what it is"
        replies = [node.ask("trigger", trigger_id=trigger_id, request_id=f"t{trigger_id}",
                            **({"part_id": part_id} if named else {})) for _ in range(2)]  # fmt: skip
        assert replies[0]["ok"]
        assert replies[0] == replies[1]
        late = node.ask("announce", trigger_id=trigger_id, part_id="another")
        assert late["code"] in ("CONFLICT", "TOO_LATE"), "what is told is never contradicted"
    results = [node.result() for _ in parts]
    assert [result["seq"] for result in results] == list(range(1, len(parts) + 1))
    assert {result["trigger_id"]: result["part_id"] for result in results} == parts
    counters = node.ask("status")["counters"]
    assert counters["triggers"] == len(parts)
    assert counters["pass"] + counters["fail"] + sum(counters["unknown"].values()) == len(parts)
    assert node.quiet(), "no result twice"


def test_hold_seals_not_running_and_start_goes_on(node: Controller) -> None:
    assert node.ask("hold")["mode"] == "HOLD"
    assert node.ask("trigger", trigger_id=1)["ok"]
    assert node.result()["reason"] == "NOT_RUNNING"
    assert node.ask("start")["mode"] == "RUNNING"
    assert node.ask("trigger", trigger_id=2)["ok"]
    assert node.result()["verdict"] in ("PASS", "FAIL")


def test_a_recipe_is_prepared_then_activated(node: Controller) -> None:
    recipes = {recipe["name"]: recipe["rev"] for recipe in node.ask("hello")["recipes"]}
    assert set(recipes) == {"line", "lenient"}
    refused = node.ask("activate_recipe", name="lenient", rev=recipes["lenient"])
    assert refused["code"] == "NOT_READY", "two phases"
    assert node.ask("prepare_recipe", name="lenient", rev="sha256:other")["code"] == "CONFLICT"
    assert node.ask("prepare_recipe", name="none", rev="x")["code"] == "NOT_FOUND"
    assert node.ask("trigger", trigger_id=1)["ok"]
    assert node.result()["recipe"] == {"name": "line", "rev": recipes["line"]}
    assert node.ask("prepare_recipe", name="lenient", rev=recipes["lenient"])["ok"]
    assert node.ask("activate_recipe", name="lenient", rev=recipes["lenient"])["ok"]
    assert node.ask("trigger", trigger_id=2)["ok"]
    bad_part = node.result()
    assert bad_part["recipe"] == {"name": "lenient", "rev": recipes["lenient"]}
    assert (bad_part["verdict"], len(bad_part["detections"])) == ("PASS", 1), "up to five are accepted now"


def test_a_recipe_that_was_activated_survives_a_power_cut(node: Controller, tmp_path: Path) -> None:
    """From the answer on; one that was only prepared does not, and one that is gone is told and not replaced unseen."""
    recipes = {recipe["name"]: recipe["rev"] for recipe in node.ask("hello")["recipes"]}

    def in_force() -> object:
        return node.ask("status")["recipe"]

    def named(name: str) -> object:
        return {"name": name, "rev": recipes[name]}

    assert node.ask("prepare_recipe", **named("lenient"))["ok"]
    node.cut_power()
    assert in_force() == named("line")
    assert node.ask("prepare_recipe", **named("lenient"))["ok"]
    assert node.ask("activate_recipe", **named("lenient"))["kept"] is True
    node.cut_power()
    assert in_force() == named("lenient")
    assert node.ask("trigger", trigger_id=1)["ok"]
    assert node.result()["recipe"] == named("lenient")
    (tmp_path / "line.models" / "recipe.json").write_text('{"name": "winter", "rev": "sha256:0"}')
    node.cut_power()
    status = node.ask("status")
    assert status["recipe"] == named("line")
    assert [alarm["text"] for alarm in status["alarms"] if alarm["alarm"] == "RECIPE_NOT_KEPT"] == [
        "recipe winter, which was in force, is not in this pipeline any more; the pipeline's own, line, is in force"
    ]
    assert node.ask("prepare_recipe", **named("line"))["ok"]
    assert node.ask("activate_recipe", **named("line"))["kept"] is True
    assert node.ask("status")["alarms"] == []


def test_a_second_process_does_not_start_with_the_recipe_that_was_activated_at_the_first(
    node: Controller, tmp_path: Path
) -> None:
    """Two lines whose files have the same name, started in one folder: nothing told it."""
    recipes = {recipe["name"]: recipe["rev"] for recipe in node.ask("hello")["recipes"]}
    lenient = {"name": "lenient", "rev": recipes["lenient"]}
    assert node.ask("prepare_recipe", **lenient)["ok"]
    assert node.ask("activate_recipe", **lenient)["kept"] is True
    ports = [f"results.{key}=tcp://127.0.0.1:{free_port()}" for key in ("publish", "commands")]
    words = ["--pipeline", "line.yaml", "--frames", "1", "--set", "limits.trigger=camera"]
    words += [word for port in ports for word in ("--set", port)]
    second = subprocess.run(
        [sys.executable, "-P", "-m", "edge_app", *words], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert second.returncode == 5, second.stderr
    assert "another process keeps its recipe and its models here" in second.stderr
    node.cut_power()  # a lock that outlived its holder would keep the line down
    assert node.ask("status")["recipe"]["name"] == "lenient"


def test_a_recipe_that_can_not_be_written_down_judges_all_the_same_and_is_told(
    node: Controller, tmp_path: Path
) -> None:
    recipes = {recipe["name"]: recipe["rev"] for recipe in node.ask("hello")["recipes"]}
    (tmp_path / "line.models" / "recipe.json.part").mkdir(parents=True)
    assert node.ask("prepare_recipe", name="lenient", rev=recipes["lenient"])["ok"]
    assert node.ask("activate_recipe", name="lenient", rev=recipes["lenient"])["kept"] is False
    status = node.ask("status")
    assert status["recipe"]["name"] == "lenient"
    assert "recipe lenient is in force, but the next start may take another one" in status["alarms"][0]["text"]


def test_self_test_needs_a_canary(node: Controller) -> None:
    assert node.ask("self_test")["code"] == "UNAVAILABLE"
