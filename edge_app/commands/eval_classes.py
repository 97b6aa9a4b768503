"""Accuracy of a classifier on labelled pictures: top-1, calibration, confusion, and what quantising cost.

examples:
  edge_app eval-classes --model NAME --pictures clothing/test.txt
  edge_app eval-classes --model NAME --pictures clothing/val.txt --pictures clothing/test.txt --runtime quantized
  edge_app eval-classes --model NAME --pictures clothing/test.txt --runtime qnn --soc qcs8550 --limit 40
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import track

from edge_app.commands.arguments import add_plan, check_plan, positive
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.detections import Classes
from edge_app.engine import Engine
from edge_app.errors import ConfigError, ExitCode, ModelError
from edge_app.evaluate_classes import Predict, look_at, read_lists, report
from edge_app.model import ModelCard, check_digest, model_folder, resolve, with_encodings
from edge_app.plans import open_plan
from edge_app.predictor import Predictor
from edge_app.runtime.cpu import open_cpu
from edge_app.verdict import PlanKind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of this command."""
    parser.add_argument("--model", required=True, metavar="NAME", help="a name below models/, or a model's folder")
    parser.add_argument(
        "--pictures", required=True, type=Path, action="append", metavar="P",
        help="a .txt list of LABEL/PICTURE, relative to it, or a folder of folders LABEL; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--runtime", choices=["cpu", "quantized", "qnn"], default="cpu",
        help="cpu: the float model; quantized: the QDQ model on the CPU; qnn: a compiled plan",
    )  # fmt: skip
    add_plan(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="look at N pictures, evenly spread")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluates; beside another runtime the float model looks at the same pictures."""
    check_plan(args)
    card = resolve(Model(path=model_folder(args.model)), Preprocess())
    if card.task != "classify":
        raise ConfigError(
            "eval-classes measures classifiers", where=card.name, wanted="task: classify", got=f"task: {card.task}",
            remedy="edge_app eval measures detectors",
        )  # fmt: skip
    pictures = read_lists(args.pictures, card.labels, args.limit)
    predicts = [predictor(card, engine_of(card, args))]
    if args.runtime != "cpu":
        predicts.append(predictor(card, open_plan(card, PlanKind.CPU, None, no_thresholds(card))))
    looked = look_at(predicts, pictures, card.labels, progress)
    document: dict[str, Any] = {
        "model": card.name, "runtime": args.runtime, "soc": args.soc, "lists": [str(path) for path in args.pictures],
        **report(looked[0], looked[1] if len(looked) > 1 else None, card.labels),
    }  # fmt: skip
    if args.json:
        print_json(document)
    else:
        show(document, card.labels)
    return int(ExitCode.OK)


def engine_of(card: ModelCard, args: argparse.Namespace) -> Engine:
    """The version of the model that was asked for."""
    if args.runtime == "cpu":
        return open_plan(card, PlanKind.CPU, None, no_thresholds(card))
    if args.runtime == "qnn":
        return open_plan(card, PlanKind(args.plan or "htp"), args.soc, no_thresholds(card))
    quantized = card.manifest.quantized if card.manifest is not None else None
    if quantized is None or card.folder is None:
        raise ModelError(
            f"{card.name} has no quantised model", remedy=f"edge_app model quantize {card.name} --calibration DIR"
        )
    session = open_cpu(check_digest(card.folder, quantized.model))
    outputs = with_encodings(session.outputs, quantized.outputs)
    return Engine(session, quantized.input, card.decoder(outputs, no_thresholds(card), quantized.head))


def no_thresholds(card: ModelCard) -> npt.NDArray[np.float32]:
    """[C]; a classifier's decode leaves nothing out."""
    return np.full(len(card.labels), 0.5, np.float32)


def predictor(card: ModelCard, engine: Engine) -> Predict:
    """BGR picture to probabilities."""
    predict = Predictor(card, engine)

    def classes(image: npt.NDArray[np.uint8]) -> Classes:
        found = predict(image)
        if not isinstance(found, Classes):
            raise ConfigError("the model's head finds boxes", where=card.name, wanted="head.kind: classify")
        return found

    return classes


def progress(pictures: Sequence[tuple[Path, str]]) -> Iterable[tuple[Path, str]]:
    """A progress bar on stderr."""
    return track(pictures, description="pictures", console=people(), transient=True)


def show(document: dict[str, Any], labels: Sequence[str]) -> None:
    """The figures as tables."""
    plain = {k: v for k, v in document.items() if k != "confusion" and v is not None}
    rows = [(key, " .. ".join(map(str, v)) if isinstance(v, list) else v) for key, v in plain.items()]
    print_table("Classifier", ("", ""), rows)
    confusion = document["confusion"]
    print_table("Confusion: rows are true", ("", *labels), [(label, *confusion[label]) for label in labels])
