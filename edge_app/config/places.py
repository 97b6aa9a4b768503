"""Errors that are found after a pipeline was read name the file and line of the key all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from edge_app.config.base import without_password
from edge_app.config.load import KeyPath, relative_path_keys
from edge_app.config.pipeline import Pipeline
from edge_app.errors import EdgeAppError


@contextmanager
def told_with_line(pipeline: Pipeline) -> Iterator[None]:
    """Around what a pipeline's values may break: where an error names a key, or a path, its line comes before it."""
    try:
        yield
    except EdgeAppError as error:
        error.where = where_in(pipeline, error.where)
        raise


def where_in(pipeline: Pipeline, where: str | None) -> str | None:
    """`results.publish`, or a path that the pipeline names, as `line.yaml:7: ...`; anything else as it is."""
    if where is None:
        return None
    key = re.match(r"\w+(\.[\w-]+)+", where)
    keys = tuple(key[0].split(".")) if key else ()
    if keys and keys[0] in Pipeline.model_fields:
        return _joined(_place(pipeline, keys), where)
    for keys, path in sorted(_paths(pipeline), key=lambda one: len(one[1]), reverse=True):  # the deepest first
        if where == path or where.startswith((path + "/", path + ":")):
            return _joined(_place(pipeline, keys), f"{'.'.join(keys)}: {where}")
    return where


def _joined(place: str | None, where: str) -> str:
    if place is None:
        return where
    return f"--set {where}" if place.startswith("--set") else f"{place}: {where}"


def _place(pipeline: Pipeline, keys: KeyPath) -> str | None:
    """The line of a key, or of the section around it; the file where it is not written; None: not from a file."""
    for end in range(len(keys), 0, -1):
        if keys[:end] in pipeline.places:
            return pipeline.places[keys[:end]]
    return pipeline.file


def _paths(pipeline: Pipeline) -> Iterator[tuple[tuple[str, ...], str]]:
    for keys in relative_path_keys(Pipeline):
        value: object = pipeline
        for key in keys:
            value = getattr(value, str(key), None)
        if isinstance(value, dict):
            yield from (((*map(str, keys), name), str(path)) for name, path in value.items())
        elif value is not None:
            yield tuple(map(str, keys)), without_password(str(value))
