"""`station:` and `results:` of a pipeline."""

from __future__ import annotations

from pydantic import Field

from edge_app.config.base import Section


class Station(Section):
    """Which place of which line this node is."""

    line: str = Field(default="l1", pattern=r"^[A-Za-z0-9_-]+$", title="Line", description="First part of the node's name.")
    station: str = Field(default="st1", pattern=r"^[A-Za-z0-9_-]+$", title="Station", description="Second part of the name.")

    @property
    def node(self) -> str:
        """`line/station`, as results name the node."""
        return f"{self.line}/{self.station}"


class Results(Section):
    """Where results go."""

    publish: str | None = Field(
        default="tcp://127.0.0.1:5560", title="PUB endpoint", description="result, heartbeat, state, alarm; null: no wire."
    )
    commands: str | None = Field(
        default="tcp://127.0.0.1:5561", title="ROUTER endpoint", description="Commands and replies; null: no commands."
    )
    allow_simulated_off_loopback: bool = Field(
        default=False,
        title="Let simulated results leave this machine",
        description="A node with a simulated camera or session binds loopback only, unless this is true.",
    )
