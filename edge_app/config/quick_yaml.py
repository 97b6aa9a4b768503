"""Plain YAML by libyaml's events: ten times as fast as a whole loader, for what is read at every start.

It reads mappings, lists, text, numbers, true, false and null, and of these only what no reader of YAML 1.2 could take
for anything else. Of whatever is more than that it says Unsure: a whole loader must read the text.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_TEXT = re.compile(r"(\.\./|[A-Za-z_/])[^\n]*|[0-9a-f]{64}|[0-9]+(\.[0-9]+){2,}")  # words, paths, digests, versions
_WORDS = {"true": True, "false": False, "null": None}


class Unsure(ValueError):
    """The text holds more than plain YAML, or libyaml is not there."""


def load(text: str) -> Any:
    """The one document of a text. Raises Unsure."""
    try:
        from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError as error:
        raise Unsure("no libyaml") from error
    parser = CParser(text)
    start, document = parser.get_event(), parser.get_event()
    if not isinstance(start, StreamStartEvent) or not isinstance(document, DocumentStartEvent) or document.version:
        raise Unsure("no document, or one that says which YAML it is")
    found = _node(parser, parser.get_event())
    parser.get_event()
    if not isinstance(parser.get_event(), StreamEndEvent):
        raise Unsure("more than one document")
    return found


def _node(parser: Any, event: Any) -> Any:
    if isinstance(event, AliasEvent) or not isinstance(event, NodeEvent) or event.anchor is not None:
        raise Unsure("an anchor or an alias")
    if getattr(event, "tag", None) is not None:
        raise Unsure("a tag")
    if isinstance(event, ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if isinstance(event, SequenceStartEvent):
        items = []
        while not isinstance(event := parser.get_event(), SequenceEndEvent):
            items.append(_node(parser, event))
        return items
    if not isinstance(event, MappingStartEvent):
        raise Unsure("no node")
    mapping = {}
    while not isinstance(event := parser.get_event(), MappingEndEvent):
        key = _node(parser, event)
        if not isinstance(key, str) or key in mapping:
            raise Unsure("a key that is no text, or stands twice")
        mapping[key] = _node(parser, parser.get_event())
    return mapping


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _TEXT.fullmatch(text) and text.lower() not in _WORDS:
        return text
    raise Unsure(f"{text!r} may be anything")
