"""The quick reader of plain YAML: what it reads is what a whole loader reads, and of all else it says so."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML, YAMLError

from edge_app.config import quick_yaml
from edge_app.config.quick_yaml import Unsure

MODELS = Path(__file__).parents[3] / "models"
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.from_regex(r"[-+.0-9a-fx_eEoOT:~<=]{1,12}", fullmatch=True) | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def whole(text: str) -> Any:
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize("manifest", sorted(MODELS.glob("*/manifest.yaml")), ids=lambda file: file.parent.name)
def test_the_shipped_manifests_are_plain(manifest: Path) -> None:
    text = manifest.read_text(encoding="utf-8")
    assert repr(quick_yaml.load(text)) == repr(whole(text))  # repr: 1, 1.0 and True are equal


@given(DATA)
def test_what_is_written_is_read_as_a_whole_loader_reads_it(data: Any) -> None:
    stream = io.StringIO()
    YAML(typ="safe").dump({"key": data}, stream)
    try:
        found = quick_yaml.load(stream.getvalue())
    except Unsure:
        return
    assert repr(found) == repr(whole(stream.getvalue()))


@given(st.from_regex(r"[-+.0-9a-fxA-F_eEoOT:~<=ynYNtruefalsu ]{1,14}", fullmatch=True))
def test_a_plain_word_is_never_taken_for_another_value(word: str) -> None:
    try:
        expected, found = whole(f"key: {word}"), quick_yaml.load(f"key: {word}")
    except (YAMLError, Unsure, ValueError):
        return
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    "text",
    [
        "", "a: 1\n---\nb: 2", "%YAML 1.1\n---\na: 1", "a: &x 1\nb: *x", "a: !!str 1", "<<: {a: 1}", "a: 1\na: 2",
        "1: a", "a: 0x1f", "a: 0o17", "a: 017", "a: 1_000", "a: 2026-11-30", "a: .nan", "a: .inf", "a: 12:30:00",
        "a: True", "a: Null", "a: ~", "a:",
    ],
)  # fmt: skip
def test_of_anything_else_it_is_unsure(text: str) -> None:
    with pytest.raises(Unsure):
        quick_yaml.load(text)
