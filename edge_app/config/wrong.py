"""What is wrong with a value, in the words of YAML: pydantic speaks Python."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from pydantic_core import ErrorDetails

NUMBER = "a number"
TYPES = {
    "bool_type": "true or false",
    "float_type": NUMBER,
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "keys and values of its own",
    "model_attributes_type": "keys and values of its own",
    "dict_type": "keys and values of its own",
}
UNITS = {"ms": "milliseconds", "us": "microseconds", "s": "seconds", "px": "pixels", "c": "degrees Celsius",
         "fps": "frames a second", "mib": "MiB", "days": "days"}  # fmt: skip
"""By how a key ends."""


def what(detail: ErrorDetails) -> str:
    """One of our own texts as it is; else the kind of mistake."""
    if detail["type"] == "value_error":
        return _as_written(detail["msg"].removeprefix("Value error, "))
    if detail["type"] in ("missing", "union_tag_not_found"):
        return "a value is missing"
    return "a value of another kind is wanted" if detail["type"] in TYPES else "not a value that it can have"


def wanted(detail: ErrorDetails) -> str | None:
    """What would have been accepted; None: `what` says it."""
    if detail["type"] in ("value_error", "missing", "extra_forbidden"):
        return None
    context = detail.get("ctx", {})
    expected = context.get("expected") or context.get("expected_tags")
    if expected:
        return _as_written(str(expected))
    if detail["type"] in ("too_short", "too_long"):
        few = detail["type"] == "too_short"
        return f"at least {context['min_length']} items" if few else f"at most {context['max_length']} items"
    return TYPES.get(detail["type"], detail["msg"].removeprefix("Input should be ").removeprefix("String should "))


def got(detail: ErrorDetails) -> str | None:
    """The value as it stands there, and its kind."""
    value = detail["input"]
    if detail["type"] in ("missing", "union_tag_not_found"):
        return None
    if isinstance(value, Mapping):
        return detail.get("ctx", {}).get("tag") or ("keys and values" if detail["type"] in TYPES else None)
    return kind_of(value) if value is None else f"{_yaml(value)} ({kind_of(value)})"


def advice(detail: ErrorDetails, key: str) -> str | None:
    """What to write instead, where that can be told from the mistake."""
    value, kind = detail["input"], TYPES.get(detail["type"])
    if kind in (NUMBER, "a whole number") and isinstance(value, str):
        unit = UNITS.get(key.rpartition("_")[2])
        return f"write a number, without quotes{'' if unit is None else f' or unit: it is in {unit}'}"
    if kind == "text" and isinstance(value, (int, float)):
        return f"put it into quotes, if that is what you mean: {key}: '{_yaml(value)}'"
    choices = re.findall(r"'([^']*)'", wanted(detail) or "") if detail["type"] in ("literal_error", "enum") else []
    near = difflib.get_close_matches(str(value).upper(), [choice.upper() for choice in choices], n=1, cutoff=0.6)
    return f"did you mean {next(one for one in choices if one.upper() == near[0])}?" if near else None


def kind_of(value: object) -> str:
    """What a value of a YAML file is."""
    if isinstance(value, bool):
        return "true or false"
    for kind, name in ((int, "a whole number"), (float, NUMBER), (str, "text"), (list, "a list")):
        if isinstance(value, kind):
            return name
    return "nothing" if value is None else "keys and values"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _as_written(text: str) -> str:
    """Some of pydantic's texts name an enum's members as Python does."""
    return re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", text)
