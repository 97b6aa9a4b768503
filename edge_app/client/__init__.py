"""The library that plant programs import. It needs pyzmq alone.

    from edge_app.client import Line

    with Line("tcp://station3:5560", "tcp://station3:5561") as line:
        for result in line:
            print(result.part_id, result.verdict, result.delivery)
"""

from edge_app.client.access import Keys
from edge_app.client.aio import AsyncLine
from edge_app.client.followed import COMMANDS, PUBLISH, CommandRefused, NoAnswer
from edge_app.client.line import Line
from edge_app.client.messages import Delivery, Position, Result, Start
from edge_app.client.rule import Cause, ControllerRule, Decision
from edge_app.keys import KeyFileError

__all__ = [
    "COMMANDS",
    "PUBLISH",
    "AsyncLine",
    "Cause",
    "CommandRefused",
    "ControllerRule",
    "Decision",
    "Delivery",
    "KeyFileError",
    "Keys",
    "Line",
    "NoAnswer",
    "Position",
    "Result",
    "Start",
]
