"""Accuracy of a model on labelled pictures: mAP, recall, precision, escapes and false rejects.

examples:
  edge_app eval --model pcb-defect --data deeppcb --split test --good deeppcb/templates
  edge_app eval --model models/pcb-defect --data deeppcb --split test --runtime qnn --soc qcs8550 --limit 20
  edge_app eval --model pcb-defect --data deeppcb --split val --good deeppcb/templates --choose-thresholds
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
from edge_app.config.load import load_manifest
from edge_app.config.pipeline import Model
from edge_app.config.tensor import Preprocess
from edge_app.detections import Detections
from edge_app.errors import ConfigError, ExitCode
from edge_app.model import ModelCard, model_folder, resolve
from edge_app.verdict import PlanKind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `edge_app eval`."""
    parser.add_argument("--model", required=True, metavar="NAME", help="a name below models/, or a model's folder")
    parser.add_argument(
        "--data", required=True, type=Path, metavar="DIR", help="a YOLO data set: folder with data.yaml"
    )
    parser.add_argument("--split", default="val", metavar="KEY", help="a key of data.yaml (default: val)")
    parser.add_argument(
        "--good", type=Path, metavar="DIR", help="defect-free pictures (those of the split's names, if any)"
    )
    parser.add_argument(
        "--runtime", choices=["cpu", "qnn"], default="cpu", help="cpu (default): the float model; qnn: a compiled plan"
    )
    add_plan(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="look at N pictures, evenly spread")
    parser.add_argument(
        "--choose-thresholds",
        action="store_true",
        help="choose operating scores and grey band on this split (never test) and write them into the manifest",
    )
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluates; exit 1 if chosen scores (written all the same) do not hold their bounds on the list."""
    from edge_app import evaluate
    from edge_app.toolchain import operating
    from edge_app.toolchain.dataset import read_dataset

    check_plan(args)
    folder = model_folder(args.model)
    dataset = read_dataset(args.data, args.split)
    if args.choose_thresholds and "test" in args.split:
        raise ConfigError("thresholds are never chosen on test", where="--split", wanted="val", got=args.split)
    card = resolve(Model(path=folder, max_detections=evaluate.MAX_DETECTIONS), Preprocess())
    predict = predictor(card, args)
    looked = evaluate.look_at_dataset(predict, dataset, card.labels, args.limit, progress("pictures"))
    stems = {file.stem for file in looked.files}
    good = None
    if args.good is not None:
        good = evaluate.look_at_good(predict, args.good, stems, args.limit, progress("good parts"))
    good = evaluate.good_parts(looked, good)
    score, marginal = card.score, card.marginal
    not_held: tuple[str, ...] = ()
    if args.choose_thresholds:
        fine = () if good is None else good.found
        chosen = operating.choose_thresholds(looked.found, looked.truth, fine, card.labels)
        score, marginal, not_held = chosen.score, chosen.marginal, chosen.not_held
        write_thresholds(folder, chosen, f"{args.data.name} {args.split}")
    document: dict[str, Any] = {
        "model": card.name, "runtime": args.runtime, "soc": args.soc, "data": str(args.data), "split": args.split,
        **evaluate.report(looked, good, card.labels, score, marginal), "score": score, "marginal": marginal,
        "not_held": list(not_held),
    }  # fmt: skip
    if args.json:
        print_json(document)
    else:
        show(document)
    for text in remarks(folder if args.choose_thresholds else None, not_held, any_good=good is not None):
        people().print(text)
    return int(ExitCode.CHECK_FAILED if not_held else ExitCode.OK)


def predictor(card: ModelCard, args: argparse.Namespace) -> Any:
    """BGR picture to detections down to a very low score, on the runtime asked for."""
    from edge_app.plans import open_plan
    from edge_app.predictor import Predictor
    from edge_app.toolchain.metrics import LOWEST_SCORE

    kind = PlanKind.CPU if args.runtime == "cpu" else PlanKind(args.plan or "htp")
    thresholds = np.full(len(card.labels), LOWEST_SCORE, np.float32)
    predict = Predictor(card, open_plan(card, kind, args.soc, thresholds))

    def detections(image: npt.NDArray[np.uint8]) -> Detections:
        found = predict(image)
        if not isinstance(found, Detections):
            raise ConfigError("eval measures detectors", where=card.name, wanted="task: detect", got="a classifier")
        return found

    return detections


def progress(what: str) -> Any:
    """A progress bar over files, on stderr."""

    def over(files: Sequence[Path]) -> Iterable[Path]:
        return track(files, description=what, console=people(), transient=True)

    return over


def remarks(written: Path | None, not_held: Sequence[str], *, any_good: bool) -> list[str]:
    """What the figures do not say: where chosen scores were written, and what is not known or does not hold."""
    told = [] if written is None else [f"the scores are in {written / 'manifest.yaml'}; a new recipe.rev follows"]
    if not any_good:
        told.append("no defect-free picture was looked at (--good DIR): how many good parts FAIL is not known")
    return [*told, *(f"no choice of scores holds on this list: {text}" for text in not_held)]


def write_thresholds(folder: Path, chosen: Any, chosen_on: str) -> None:
    """Writes operating scores into the manifest, everything else left as it stands."""
    from edge_app.config.save import set_operating

    set_operating(folder, chosen.score, chosen.marginal, chosen_on)
    load_manifest(folder)


def show(document: dict[str, Any]) -> None:
    """The figures as tables."""
    plain = {k: v for k, v in document.items() if not isinstance(v, dict | list)}
    print_table(f"{document['model']} on {document['split']}", ("", ""), list(plain.items()))
    rows = [
        (label, ap["ap50"], ap["ap50_95"], document["score"].get(label), document["marginal"].get(label))
        for label, ap in document["by_label"].items()
    ]
    print_table("By label", ("label", "AP50", "AP50-95", "FAIL at", "UNKNOWN at"), rows)
