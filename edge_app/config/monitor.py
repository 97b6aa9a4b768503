"""`monitor:` of a pipeline: the pages and metrics that the node serves."""

from __future__ import annotations

from pydantic import Field

from edge_app.config.base import Section, YamlPath


class Monitor(Section):
    """A small web server beside the line; read-only."""

    http: str | None = Field(
        default=None,
        title="Address",
        description="ADDRESS:PORT of the operator page and /metrics, e.g. 127.0.0.1:8560; null: no server."
        " An address that other machines reach needs token_file.",
    )
    token_file: YamlPath | None = Field(
        default=None,
        title="Token",
        description="File with one line of 16 or more characters, readable by its owner alone. Browsers give it once"
        " (http://.../?token=...), programs as `Authorization: Bearer`; null: only this machine may look.",
    )
    pictures: bool | None = Field(
        default=None,
        title="Pictures",
        description="Show pictures of what did not pass. They are held in memory, the last ones only. null: of parts,"
        " but not where `decision` is set: those pictures are of people.",
    )
    live: bool = Field(
        default=False,
        title="Live view",
        description="With `decision` only: /mirror, the mirror's own screen, and /mirror.mjpg show what the camera sees"
        " to whoever may look at the pages. Frames stay in memory, and only while somebody looks.",
    )
