"""Loading YAML into checked sections; every error names file, line, key, what was wanted and what was got."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from edge_app.config import quick_yaml, wrong
from edge_app.config.base import RelativePath, Section
from edge_app.config.manifest import Manifest, manifest_path
from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError, ModelError

KeyPath = tuple[str | int, ...]
MOST_KEYS = 100_000
"""Aliases of aliases can make any number of a few lines."""
BAD_VALUES = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)
"""What the loader raises, beside YAMLError, at a value that is none: `!!int x`, a 13th month, ten thousand brackets;
and pathlib where links go round in a circle."""
SectionT = TypeVar("SectionT", bound=Section)


@dataclass
class Document:
    """Plain data of a YAML file, and where each key stands."""

    file: Path
    data: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, keys: KeyPath) -> str:
        """The nearest known place of a key: its own, else that of the section around it."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.places:
                return self.places[keys[:end]]
        return f"{self.file}:1"


def load_pipeline(file: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Reads a pipeline YAML and applies `--set key=value` overrides.

    Raises:
        ConfigError: unreadable file, bad YAML, unknown key, wrong type or value; says where.
    """
    document = read_yaml(file)
    for override in overrides:
        apply_override(document, override, Pipeline)
    return validate(document, Pipeline).read_from(file, document.places)


def load_manifest(model_folder: Path) -> Manifest:
    """Reads `manifest.yaml` of a model folder.

    Raises:
        ModelError: no such folder or manifest.
        ConfigError: the manifest is not valid.
    """
    file = manifest_path(model_folder)
    if not file.is_file():
        raise ModelError(
            "no manifest in the model's folder",
            where=str(model_folder),
            wanted=f"a file {file.name}",
            got="no such folder" if not model_folder.exists() else "no such file",
            remedy="give model.path the folder of a model, or a .onnx file; `edge_app model import` makes a folder",
        )
    return _read_quickly(file) or validate(read_yaml(file), Manifest)


def _read_quickly(file: Path) -> Manifest | None:
    """A manifest without any error; None: read it again by `read_yaml`, which knows the lines of what is wrong.

    A manifest has a thousand lines and is read at every start; a loader that keeps comments and places takes fifty
    times as long.
    """
    try:
        data = quick_yaml.load(file.read_text(encoding="utf-8"))
        return _checked(data, Manifest, file)
    except (OSError, ValueError, TypeError, YAMLError):  # of bytes that are no UTF-8 and of pydantic: ValueErrors
        return None


def read_yaml(file: Path) -> Document:
    """Reads a YAML mapping. Duplicate keys, tabs and other bad YAML are errors with a line."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "can't read the file",
            where=str(file),
            got=error.strerror or str(error),
            remedy="see who may read it" if isinstance(error, PermissionError) else "check the path",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("not a text file in UTF-8", where=str(file), got=str(error)) from error
    try:
        tree = YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        raise _yaml_error(file, error, "the same key stands twice", "keep one of the two") from error
    except YAMLError as error:
        remedy = "see this line and the one before: spaces (no tabs) to indent, colons, quotes, brackets"
        raise _yaml_error(file, error, "not valid YAML", remedy) from error
    except BAD_VALUES as error:
        raise _no_value(str(file), error) from error
    if not isinstance(tree, CommentedMap):
        got = "an empty file" if tree is None else "a list" if isinstance(tree, list) else wrong.kind_of(tree)
        raise ConfigError("not a mapping of keys to values", where=f"{file}:1", wanted="key: value lines", got=got)
    document = Document(file, {})
    document.data = _plain(tree, (), document)
    return document


def _no_value(where: str, error: Exception) -> ConfigError:
    return ConfigError(
        "a value can't be read", where=where, wanted="numbers, text, lists and mappings",
        got=f"{type(error).__name__}: {error}", remedy="put text into quotes; are dates, tags and nesting meant?",
    )  # fmt: skip


def _yaml_error(file: Path, error: YAMLError, what: str, remedy: str) -> ConfigError:
    line, problem = 1, str(error)
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = str(error.problem).partition(" with value ")[0]  # of a key that stands twice: all that is below it
    return ConfigError(what, where=f"{file}:{line}", got=problem.strip().splitlines()[0], remedy=remedy)


def _plain(node: Any, keys: KeyPath, document: Document) -> Any:
    """ruamel's nodes as plain data; notes the line of every key."""
    if len(document.places) > MOST_KEYS:
        raise ConfigError("too many keys", where=str(document.file), wanted=f"at most {MOST_KEYS}, aliases counted")
    if isinstance(node, CommentedMap):
        result: dict[str, Any] = {}
        for key, value in node.items():
            if str(key) in result:  # 1 and "1" differ in YAML, but not as names
                raise ConfigError("the same key stands twice", where=document.place((*keys, str(key))), got=str(key))
            if key in (node.lc.data or {}):  # else it came in by a merge (<<), and its section's place is the nearest
                document.places[(*keys, str(key))] = f"{document.file}:{node.lc.key(key)[0] + 1}"
            result[str(key)] = _plain(value, (*keys, str(key)), document)
        return result
    if isinstance(node, CommentedSeq):
        for index in node.lc.data or ():
            document.places[(*keys, index)] = f"{document.file}:{node.lc.item(index)[0] + 1}"
        return [_plain(item, (*keys, index), document) for index, item in enumerate(node)]
    if isinstance(node, str):
        return str(node)
    if isinstance(node, bool) or node is None:
        return node
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node)
    return str(node)


def apply_override(document: Document, override: str, model: type[BaseModel]) -> None:
    """Applies one `--set key.path=value`; the value is read as YAML.

    Relative paths are taken from the caller's folder. When a section's `type` changes, keys that only the old type
    has are dropped, since they would be unknown to the new one.
    """
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise ConfigError(
            "not an override", where=f"--set {override}", wanted="key=value, e.g. camera.type=folder", got=override
        )
    keys = tuple(dotted.split("."))
    try:
        value = YAML(typ="safe").load(text) if text else None
        if isinstance(value, str) and keys in relative_path_keys(model) and _is_file(value):
            value = str((Path.cwd() / value).resolve())
    except (YAMLError, *BAD_VALUES) as error:
        raise ConfigError("the value can't be used", where=f"--set {override}", got=str(error)) from error
    target = document.data
    for key in keys[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError("an override goes below a value", where=f"--set {override}", got=f"{key} is no section")
    if keys[-1] == "type" and target.get("type") != value:
        _drop_keys_of_other_type(target, str(value), keys[:-1], model)
    target[keys[-1]] = value
    document.places[keys] = f"--set {dotted}"


def _is_file(source: str) -> bool:
    """Neither a URL nor a device's number; a NUL, which no name can have, is left for the check to tell."""
    return "://" not in source and not source.isdecimal() and "\0" not in source


def _drop_keys_of_other_type(section: dict[str, Any], new_type: str, keys: KeyPath, model: type[BaseModel]) -> None:
    for member in _models_at(model, keys):
        accepted = get_args(member.model_fields["type"].annotation) if "type" in member.model_fields else ()
        if new_type in accepted:
            for key in set(section) - set(member.model_fields):
                del section[key]


def validate(document: Document, model: type[SectionT]) -> SectionT:
    """Checks a document against a section; the first error is raised, with its line.

    Raises:
        ConfigError: with file, line, key, wanted, got, and the nearest valid key.
    """
    try:
        return _checked(document.data, model, document.file)
    except ValidationError as error:
        raise _first_error(document, error, model) from error
    except BAD_VALUES as error:  # what can't even be written down: a number of ten thousand digits, an endless list
        raise _no_value(str(document.file), error) from error


def _checked(data: Any, model: type[SectionT], file: Path) -> SectionT:
    text = json.dumps(data, default=str, ensure_ascii=False).encode()
    return model.model_validate_json(text, context={"base": str(file.resolve().parent)})


def _first_error(document: Document, error: ValidationError, model: type[BaseModel]) -> ConfigError:
    details = error.errors(include_url=False)
    # An unknown key explains a missing one (a typo gives both), so it is told first.
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    keys = tuple(k for k in detail["loc"] if not _is_union_tag(document.data, detail["loc"], k))
    more = f" ({len(details) - 1} more after this one)" if len(details) > 1 else ""
    if detail["type"] == "extra_forbidden":
        return _unknown_key(document, keys, model, more)
    what = wrong.what(detail)
    if not keys and (named := re.match(r"\w+(\.\w+)*", what)) and named[0].split(".")[0] in model.model_fields:
        where, said = document.place(tuple(named[0].split("."))), what  # of several sections: it begins with a key
    else:
        where, said = document.place(keys), f"{_dotted(keys) or 'the whole file'}: {what}"
        if where == f"--set {_dotted(keys)}":
            said = what
    return ConfigError(
        f"{said}{more}",
        where=where,
        wanted=wrong.wanted(detail),
        got=wrong.got(detail),
        remedy=wrong.advice(detail, str(keys[-1]) if keys else "") or _title_of(model, keys),
    )


def _is_union_tag(data: Any, loc: tuple[str | int, ...], key: str | int) -> bool:
    """pydantic puts the tag of a discriminated union into the path: `camera.folder.path`."""
    index = loc.index(key)
    return (
        index == 1 and loc[0] == "camera" and isinstance(data.get("camera"), dict) and data["camera"].get("type") == key
    )


def _unknown_key(document: Document, keys: KeyPath, model: type[BaseModel], more: str) -> ConfigError:
    valid = sorted({name for member in _models_at(model, keys[:-1], document.data) for name in member.model_fields})
    near = difflib.get_close_matches(str(keys[-1]), valid, n=1, cutoff=0.5)
    return ConfigError(
        f"unknown key {_dotted(keys)}{more}",
        where=document.place(keys),
        wanted=f"one of {', '.join(valid)}",
        got=str(keys[-1]),
        remedy=f"did you mean {_dotted((*keys[:-1], near[0]))}?" if near else "remove it",
    )


def _title_of(model: type[BaseModel], keys: KeyPath) -> str | None:
    while keys and isinstance(keys[-1], int):  # an item is what its list is described as
        keys = keys[:-1]
    for member in _models_at(model, keys[:-1]):
        info = member.model_fields.get(str(keys[-1])) if keys else None
        if info is not None and info.description:
            return f"{keys[-1]} is: {info.description}"
    return None


def _dotted(keys: KeyPath) -> str:
    return ".".join(str(key) for key in keys)


def _models_at(model: type[BaseModel], keys: KeyPath, data: Any = None) -> list[type[BaseModel]]:
    """The sections that may stand at a key path; of a union, the one that `data` chose, else all."""
    models = [model]
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
        found = [
            m
            for parent in models
            if str(key) in parent.model_fields
            for m in _section_types(parent.model_fields[str(key)].annotation)
        ]
        if not found and isinstance(key, (int, str)):
            found = models  # an index of a list or a key of a mapping: the element's own model is kept
        chosen = data.get("type") if isinstance(data, Mapping) else None
        of_type = [
            m for m in found if "type" in m.model_fields and chosen in get_args(m.model_fields["type"].annotation)
        ]
        models = of_type or found
    return models


def _section_types(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, tuple, dict, list) or hasattr(annotation, "__metadata__"):
        return [m for a in get_args(annotation) for m in _section_types(a)]
    return []


def relative_path_keys(model: type[BaseModel], prefix: KeyPath = ()) -> set[KeyPath]:
    """Key paths whose values are paths relative to the file that names them."""
    found: set[KeyPath] = set()
    for name, info in model.model_fields.items():
        if any(isinstance(m, RelativePath) for m in _metadata(info.annotation, info.metadata)):
            found.add((*prefix, name))
        for section in _section_types(info.annotation):
            found |= relative_path_keys(section, (*prefix, name))
    return found


def _metadata(annotation: Any, own: Sequence[Any]) -> list[Any]:
    metadata = [*own, *getattr(annotation, "__metadata__", ())]
    for argument in get_args(annotation):
        metadata.extend(_metadata(argument, ()))
    return metadata
