from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_app.results import wire

TEXTS = st.text(st.characters(), max_size=8)  # all of Unicode, halves of surrogate pairs too
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS)
NUMPY = st.one_of(st.floats(width=32).map(np.float32), st.floats().map(np.float64), st.integers(0, 255).map(np.uint8))
LISTS = st.lists(SCALARS | NUMPY, max_size=4)
VALUES = SCALARS | NUMPY | LISTS | LISTS.map(tuple) | st.dictionaries(TEXTS, LISTS, max_size=3)
MESSAGES = st.dictionaries(TEXTS, VALUES, max_size=6)


def as_read(value: Any) -> Any:
    """What a subscriber must have of a value."""
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_read(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def test_a_message_takes_the_memory_that_it_is_long() -> None:
    """A line keeps 8,192 results in memory: at the 8 KiB that orjson's buffers take these are 67 MB."""
    message = {"seq": 1, "defects": [{"label": "short", "score": 0.5}] * 20}
    tracemalloc.start()
    try:
        kept = [wire.encode(message) for _ in range(200)]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 1.3 * sum(map(len, kept))


@given(MESSAGES)
def test_a_message_arrives_as_it_was_sent_whatever_is_in_it(message: dict[str, Any]) -> None:
    body = wire.encode(message)
    assert body.isascii()
    assert json.loads(body) == as_read(message)


@given(TEXTS)
def test_only_the_field_itself_is_marked_as_replayed(text: str) -> None:
    body = wire.encode({"detail": f'{text},"replayed":false,', "replayed": False, "software": "1"})
    assert json.loads(wire.as_replayed(body)) == {**json.loads(body), "replayed": True}


@dataclass
class NoMessage:
    value: int = 1


@pytest.mark.parametrize("bug", [object(), NoMessage(), np.zeros(2), {1, 2}, b"raw"])
def test_what_is_no_json_is_a_bug_and_not_sent_as_something_else(bug: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        wire.encode({"bug": bug})
