"""Who this node is, and how it stands: what the application tells the wire."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edge_app.verdict import Mode, ModelIdentity, Placement


@dataclass(frozen=True, slots=True)
class Recipe:
    """The judge's settings by name and content: `rev` is `sha256:` of what is in force."""

    name: str
    rev: str


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """How far the UTC stamps can be trusted: at most `err_us` off; None where nobody vouches for the clock."""

    source: Literal["ntp", "unsynchronised"] = "unsynchronised"
    err_us: int | None = None


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What every result says of its node. Replaced as a whole when the recipe or the model changes."""

    node: str
    """`line/station`"""
    epoch: str
    """New at each start; see `new_epoch`."""
    software: str
    recipe: Recipe
    model: ModelIdentity
    simulated: bool
    """The camera or the session is not the plant's."""
    clock: ClockInfo = ClockInfo()
    recipes: tuple[Recipe, ...] = ()
    """What `prepare_recipe` may name; told by `hello`."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """For `describe`: JSON data, e.g. the resolved pipeline."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How the line stands now; asked for with every heartbeat, on the wire's thread: it must be quick and not block."""

    mode: Mode
    ready: bool
    triggers: int
    """Triggers seen; equals passed + failed + the sum of `unknown` + those in flight."""
    passed: int
    failed: int
    unknown: Mapping[str, int]
    """Count by reason."""
    queue_depth: int
    """Frames in flight."""
    placement: Placement
    degraded: tuple[str, ...] = ()
    frames: Mapping[str, int] = field(default_factory=dict)
    """Of a line that decides over many frames, which are no triggers: how many came, were gated, were inferred."""


def new_epoch() -> str:
    """A name for one run of a node: random, since a clock may be wrong or set back."""
    return secrets.token_hex(8)
