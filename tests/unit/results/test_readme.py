"""What the README tells of the wire, for those who write a controller from it alone, is what a node takes and sends."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from wire_samples import PLACEMENT, Line, outlet

from edge_app.client import Line as Client
from edge_app.results.commands import COMMANDS, Code
from edge_app.verdict import Mode

README = Path(__file__).parents[3] / "README.md"
pytestmark = pytest.mark.skipif(not README.is_file(), reason="not a checkout")


def section() -> str:
    return README.read_text(encoding="utf-8").split("### Commands and messages")[1].split("### Other languages")[0]


def test_every_command_with_its_fields_and_role() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) ?\| (\w+) \|", section(), re.MULTILINE)
    told = {name: (re.findall(r"`(\w+)`(\??)", fields), role) for name, fields, role in rows}
    assert told == {
        name: ([(n, "" if a.required else "?") for n, a in one.arguments.items()], one.role.name.lower())
        for name, one in COMMANDS.items()
    }


def test_every_code_and_mode() -> None:
    text = section()
    assert [word for word in [*Code, *Mode] if word.value not in text] == []


def samples() -> dict[str, dict[str, Any]]:
    block = section().split("```")[1].replace("{...}", "{}").replace(",...}", "}")
    decoder, found, at = json.JSONDecoder(), {}, 0
    while (at := block.find('{"v"', at)) >= 0:
        one, at = decoder.raw_decode(block, at)
        found[one["kind"]] = one
    return found


def test_samples_have_fields_that_a_node_sends() -> None:
    told: dict[str, dict[str, Any]] = samples()
    sent: dict[str, Any] = {}
    opened = outlet(Line())
    opened.start()
    try:
        with Client(str(opened.publish_endpoint), str(opened.commands_endpoint)) as client:
            for raised in itertools.cycle((True, False)):
                opened.alarm("LATE", raised, "late", "wait")
                opened.state(Mode.HOLD, Mode.RUNNING, PLACEMENT, "held by plc-1")
                client.next(0.2)
                sent |= {event["kind"]: event for event in client.events()}
                if client.heartbeat is not None and {"state", "alarm"} <= set(sent):
                    sent["heartbeat"] = client.heartbeat
                    break
    finally:
        opened.close()
    assert {kind: sorted(set(one) - set(sent[kind])) for kind, one in told.items()} == {
        "heartbeat": [], "state": [], "alarm": [],
    }  # fmt: skip
