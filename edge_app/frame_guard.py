"""The frame guard as the line calls it: measure a frame in C, compare with what was learnt from good frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from edge_app.config.guard import (
    GuardFile,
    GuardLimits,
    GuardProduct,
    GuardReferences,
    load_guard_file,
    packed,
    packed_values,
    unpacked,
    unpacked_values,
)
from edge_app.durable import write_whole
from edge_app.engine import memory_of, source_of
from edge_app.errors import CameraError, ConfigError
from edge_app.frame import Frame
from edge_app.guard import SAMPLES, Limits, Product, check
from edge_app.preprocess import FrameMeasures, measure
from edge_app.verdict import Judgement


def make_guard(file: Path | None) -> Callable[[Frame], Judgement | None]:
    """The guard of a pipeline: None for a frame that may be judged, else what is sealed for it.

    Raises:
        ConfigError: the guard file can't be read, or is none.
    """
    products = [] if file is None else load_products(file)

    def guard(frame: Frame) -> Judgement | None:
        finding = check(measure_frame(frame), products, (frame.width, frame.height))
        return None if finding is None else Judgement(finding.reason, finding.detail)

    return guard


def measure_frame(frame: Frame) -> FrameMeasures:
    """Measures a complete frame."""
    if frame.pixels is None:
        raise CameraError("a frame without pixels can't be measured", where=frame.name, got=frame.note or frame.status)
    return measure(memory_of(frame.pixels), source_of(frame))


def load_products(file: Path) -> list[Product]:
    """The products of a guard file, those with few references first: they are quickly told apart."""
    read = load_guard_file(file)
    for product in read.products:
        if product.references.samples != SAMPLES:
            raise ConfigError(
                "the guard file was learnt by another release",
                where=f"{file}: {product.name}",
                wanted=f"profiles of {SAMPLES} values",
                got=str(product.references.samples),
                remedy="learn it anew: edge_app calibration guard --from DIR --out FILE",
            )
    return sorted(map(product_of, read.products), key=lambda product: len(product.detail))


def read_guard_products(file: Path) -> list[GuardProduct]:
    """What a guard file holds so far; nothing if there is no such file."""
    return list(load_guard_file(file).products) if file.exists() else []


def product_of(section: GuardProduct) -> Product:
    """From the file."""
    references = section.references
    return Product(
        name=section.name,
        width=section.width,
        height=section.height,
        limits=Limits(**section.limits.model_dump()),
        columns=unpacked(references.columns, references.count),
        rows=unpacked(references.rows, references.count),
        detail=unpacked_values(references.detail),
    )


def section_of(product: Product, learnt_from: str) -> GuardProduct:
    """For the file."""
    limits = {
        key: tuple(round(part, 4) for part in value) if isinstance(value, tuple) else round(value, 4)
        for key, value in asdict(product.limits).items()
    }
    return GuardProduct(
        name=product.name,
        width=product.width,
        height=product.height,
        learnt_from=learnt_from,
        limits=GuardLimits.model_validate(limits),
        references=GuardReferences(
            count=len(product.detail),
            samples=SAMPLES,
            columns=packed(product.columns),
            rows=packed(product.rows),
            detail=packed_values(product.detail),
        ),
    )


def write_guard_file(file: Path, products: list[GuardProduct]) -> None:
    """Writes the file whole or not at all. Raises ConfigError."""
    text = GuardFile(products=tuple(products)).model_dump_json(indent=1) + "\n"
    write_whole(file, text, "the guard file", ConfigError)
