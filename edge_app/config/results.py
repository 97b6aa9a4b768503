"""`station:` and `results:` of a pipeline."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from edge_app.config.base import Section, YamlPath


class Station(Section):
    """Which place of which line this node is."""

    line: str = Field(
        default="l1",
        pattern=r"^[A-Za-z0-9_-]+$",
        title="Line",
        description="First part of the node's name: letters, digits, _ and -.",
    )
    station: str = Field(
        default="st1", pattern=r"^[A-Za-z0-9_-]+$", title="Station", description="Second part of the name, likewise."
    )

    @property
    def node(self) -> str:
        """`line/station`, as results name the node."""
        return f"{self.line}/{self.station}"


class Journal(Section):
    """Where every result is kept, so that whoever missed one can ask for it."""

    path: YamlPath | None = Field(
        default=None,
        title="File",
        description="SQLite file, made if absent; null: no journal, results can be replayed from memory alone.",
    )
    keep_days: float = Field(
        default=30.0,
        gt=0,
        title="Keep by age",
        description="Older results are deleted, days; a longer pause between two runs ages nothing.",
    )
    keep_mib: int = Field(
        default=1024, ge=4, title="Keep by size", description="The oldest are deleted when the file is larger, MiB."
    )


class Evidence(Section):
    """Pictures of what did not pass."""

    path: YamlPath | None = Field(default=None, title="Folder", description="Made if absent; null: no pictures.")
    keep_mib: int = Field(
        default=2048, ge=1, title="Quota", description="The oldest pictures are deleted when all are larger, MiB."
    )
    free_mib: int = Field(
        default=512,
        ge=0,
        title="Leave free",
        description="No picture is written while the disk has less than this free, MiB: it is the journal's.",
    )
    pass_every: int = Field(
        default=1000, ge=0, title="Sample of PASS", description="Every so many-th PASS is kept too; 0: none."
    )
    quality: int = Field(default=90, ge=1, le=100, title="JPEG quality")
    queue_mib: int = Field(
        default=64, ge=1, title="Waiting pictures", description="Pictures beyond this are dropped, and counted, MiB."
    )


class Security(Section):
    """CURVE on both sockets. Without a key only this machine may listen."""

    key: YamlPath | None = Field(
        default=None, title="Node's key", description="Secret key file (`edge_app keys new`); null: no encryption."
    )
    clients: YamlPath | None = Field(
        default=None, title="Clients", description="clients.toml: name, public key and role of all who may connect."
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.key is None) != (self.clients is None):
            raise ValueError("security needs both key and clients (or neither: then only this machine may listen)")
        return self


class Results(Section):
    """Where results go."""

    publish: str | None = Field(
        default="tcp://127.0.0.1:5560",
        title="PUB endpoint",
        description="result, heartbeat, state, alarm; null: no wire.",
    )
    commands: str | None = Field(
        default="tcp://127.0.0.1:5561", title="ROUTER endpoint", description="Commands and replies; null: no commands."
    )
    allow_simulated_off_loopback: bool = Field(
        default=False,
        title="Let simulated results leave this machine",
        description="A node with a simulated camera or session binds loopback only, unless this is true.",
    )
    journal: Journal = Field(default_factory=Journal, title="Journal")
    evidence: Evidence = Field(default_factory=Evidence, title="Evidence")
    security: Security = Field(default_factory=Security, title="Security")
