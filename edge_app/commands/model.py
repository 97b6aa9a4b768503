"""Models: from a trained network to verified plans for each SoC.

examples:
  edge_app model import best.onnx --name mine --task detect         a model folder, fixed and described
  edge_app model quantize mine --calibration pictures --target-loss 0.5% --data dataset --split val
  edge_app model compile mine --soc qcs6490,qcs8550                 plans, audited, bound in the manifest
  edge_app model verify mine --data dataset --split test --json     the ladder: float, QDQ, each plan
  edge_app model compare mine --calibration pictures --data dataset   beside plain A8W8 and A16W8
  edge_app model canary mine --picture part.png                     what its plans are proven by at every start
  edge_app model record mine --board "RB3 Gen 2" --soc qcs6490 --plan htp --loads yes
  edge_app model show mine                                          what is there, in one table
  edge_app model list                                               all models; socs: all SoCs

while a line runs (roles: engineer; viewer for status):
  edge_app model push models/mine --line tcp://127.0.0.1:5561       stores a version at the node, whole or not at all
  edge_app model activate mine@3f9a1c2b7d4e                         loads, proves, swaps; goes back if it fails
  edge_app model rollback                                           to the version before
  edge_app model prefer cpu                                         inspect there, e.g. while the NPU is looked at
  edge_app model status                                             what is in force, what is stored
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from edge_app.client import COMMANDS
from edge_app.commands.arguments import above_zero, add_keys, positive, seed, share
from edge_app.commands.report import add_json_argument, add_plot_argument
from edge_app.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words after `edge_app model`, each with its own arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, add, what in (
        ("import", _add_import, "make a model folder of a trained .onnx or .pt"),
        ("quantize", _add_quantize, "make the QDQ model that NPU plans are compiled from"),
        ("compile", _add_compile, "make the plans of each SoC"),
        ("verify", _add_verify, "compare every plan with the float model"),
        ("compare", _add_compare, "the shipped model beside onnxruntime's default and plain A8W8 and A16W8"),
        ("canary", _add_canary, "store the float model's answer to a picture, for plans to be proven by"),
        ("record", _add_record, "note what was seen on a real board"),
        ("show", _add_show, "plans of a model: size, segments, float ops, cycles, accuracy"),
        ("list", _add_list, "all models"),
        ("socs", _add_socs, "the SoCs that plans can be compiled for, with sources"),
        ("push", _add_push, "store a version of a model at a running node"),
        ("activate", _add_activate, "let a stored version take over between two frames, watched"),
        ("rollback", _add_node, "let the version before take over again"),
        ("prefer", _add_prefer, "have a running node inspect on one plan; any: as its scheduler sees fit"),
        ("status", _add_node, "the versions at a node: in force, stored, and how the last update went"),
    ):
        sub = verbs.add_parser(name, help=what, description=what)
        add(sub)
        add_json_argument(sub)


def run(args: argparse.Namespace) -> int:
    """Runs one verb; those that make or show models need the extra [toolchain]."""
    if args.verb in ("push", "activate", "rollback", "prefer", "status"):
        from edge_app.commands import model_update

        return int(getattr(model_update, f"run_{args.verb}")(args))
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError(
            "the model toolchain is not installed",
            wanted="the package onnx",
            remedy="pip install 'edge_app[toolchain]'",
        )
    from edge_app.commands import model_canary, model_compare, model_make, model_show, model_verify

    verbs: dict[str, Any] = {
        "import": model_make.run_import,
        "quantize": model_make.run_quantize,
        "compile": model_make.run_compile,
        "verify": model_verify.run_verify,
        "compare": model_compare.run_compare,
        "canary": model_canary.run_canary,
        "record": model_show.run_record,
        "show": model_show.run_show,
        "list": model_show.run_list,
        "socs": model_show.run_socs,
    }
    return int(verbs[args.verb](args))


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name below models/, or a model's folder")


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=".onnx, or an Ultralytics .pt (extra [train])")
    parser.add_argument("--name", required=True, metavar="N", help="of the new model: a-z, 0-9, - and _")
    parser.add_argument("--task", required=True, choices=["detect", "classify"], help="boxes, or one label")
    parser.add_argument("--labels", type=Path, metavar="F", help="one label a line, in the model's order")
    parser.add_argument(
        "--head", choices=["yolov8", "yolov5", "yolox", "end2end", "classify"], help="if not recognised"
    )
    parser.add_argument(
        "--size", metavar="WxH,..", help="for a model that leaves its input size open; several make NAME/WxH of each"
    )
    parser.add_argument("--color", choices=["RGB", "BGR", "GRAY"], help="of the model's input, as trained")
    parser.add_argument("--fit", choices=["letterbox", "letterbox_topleft", "crop", "stretch"], help="as trained")
    parser.add_argument("--method", choices=["bilinear", "area", "antialias"], help="of resizing (default: bilinear)")
    parser.add_argument("--pad-value", type=int, metavar="G", help="grey level of the letterbox bars (default: 114)")
    parser.add_argument(
        "--shorter-side", type=positive, metavar="PX", help="--fit crop: resize to it, then cut, e.g. 256 for 224"
    )
    parser.add_argument("--scale", type=float, metavar="S", help="value = (pixel * S - mean) / std, e.g. 0.00392157")
    parser.add_argument("--mean", type=float, nargs="+", metavar="M", help="per channel, after scale")
    parser.add_argument("--std", type=float, nargs="+", metavar="D", help="per channel, after scale")
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="DIR", help="where (default: models)")
    parser.add_argument(
        "--soc", metavar="S,S", help="show which ops the HTP of these SoCs takes (default: the shipped ones)"
    )
    parser.add_argument("--no-ops", action="store_true", help="do not ask the compiler about the ops")


def _add_quantize(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--calibration", type=Path, metavar="DIR", help="pictures as the camera delivers them")
    source.add_argument("--from-encodings", action="store_true", help="make it again without pictures, and compare")
    parser.add_argument("--list", dest="list_file", type=Path, metavar="F", help="which pictures of DIR: a path a line")
    parser.add_argument("--count", type=positive, metavar="N", help="draw N pictures of DIR by --seed")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of --count (default: 0)")
    parser.add_argument(
        "--activations",
        choices=["a8", "a16", "mixed"],
        help="default: a16 for detectors whose head stays in the graph, else a8",
    )
    parser.add_argument("--raise", dest="raised", default="", metavar="L,L", help="mixed: layers at 16 bits, by name")
    parser.add_argument("--style", default="", metavar="P=V,..", help="activations= and weights= (a)symmetric")
    parser.add_argument(
        "--method", choices=["minmax", "percentile", "entropy"], default="minmax",
        help="how ranges follow from what was seen (default: minmax)",
    )  # fmt: skip
    parser.add_argument("--target-loss", type=share, metavar="L", help="e.g. 0.5%%: raise layers until it is met")
    parser.add_argument("--data", type=Path, metavar="DIR", help="labelled pictures (YOLO) to measure the loss on")
    parser.add_argument("--split", default="val", metavar="KEY", help="of --data (default: val)")
    parser.add_argument("--limit", type=positive, default=40, metavar="N", help="pictures for the loss (default: 40)")
    parser.add_argument(
        "--rescue",
        action="store_true",
        help="equalise and correct biases, if it helps (tried anyway below cosine 0.99)",
    )
    parser.add_argument("--no-cut", action="store_true", help="leave the YOLO head in the graph")
    parser.add_argument("--recipes", type=Path, default=Path("calibration"), metavar="DIR", help="default: calibration")
    add_plot_argument(parser, "with --target-loss: draw the error by layer")


def _add_compile(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--soc", metavar="S,S", help="default: the SoCs of the manifest, else the shipped ones")
    parser.add_argument("--plans", default="htp,hybrid", metavar="P,P", help="htp, hybrid (default: both)")
    parser.add_argument("--host-ops", metavar="OP,OP", help="hybrid: op kinds on the CPU (default: activations, norms)")
    parser.add_argument("--host-nodes", metavar="N,N", help="hybrid: single nodes on the CPU, instead of op kinds")
    parser.add_argument(
        "--most-crossings", type=positive, metavar="N",
        help="hybrid: with more tensors to cross, only the most sensitive nodes of the host op kinds go to the CPU",
    )  # fmt: skip
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="to find the most sensitive nodes with")
    parser.add_argument("--check", action="store_true", help="make the manifest's binaries again and compare the bytes")
    parser.add_argument("--dlc", type=Path, metavar="DIR", help="also write a .dlc for the QNN and SNPE tools")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--soc", metavar="S,S", help="default: all of the manifest")
    parser.add_argument("--plans", default="htp,hybrid", metavar="P,P", help="htp, hybrid (default: both)")
    data_help = "a YOLO data set, or pictures (classifiers: LABEL/PICTURE)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=data_help)
    parser.add_argument("--split", metavar="KEY", help="of data.yaml (default: test, else val)")
    parser.add_argument("--limit", type=positive, metavar="N", help="so many pictures, evenly spread")
    parser.add_argument("--cosine", type=float, default=0.99, metavar="C", help="gate: least cosine (default: 0.99)")
    parser.add_argument("--loss", type=share, default="1.5%", metavar="L", help="gate: most loss (default: 1.5%%)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where outputs are kept (default: the user's cache)")
    parser.add_argument("--write", action="store_true", help="write the result into the manifest")
    parser.add_argument(
        "--drift", action="store_true", help="look for the layer where drift starts, also if all is well"
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--calibration", type=Path, required=True, metavar="DIR", help="the pictures it was quantised with"
    )
    parser.add_argument("--list", dest="list_file", type=Path, metavar="F", help="which pictures of DIR: a path a line")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="a YOLO data set")
    parser.add_argument("--split", default="test", metavar="KEY", help="of data.yaml (default: test)")
    parser.add_argument("--limit", type=positive, metavar="N", help="so many pictures, evenly spread")
    parser.add_argument("--soc", default="qcs8550", metavar="S,S", help="count cycles on these (default: qcs8550)")


def _add_canary(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--picture", metavar="P", help="a file, or 'synthetic product=P seed=S' (default: the manifest's own)"
    )


def _add_record(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--board", required=True, metavar="B", help="e.g. 'RB3 Gen 2'")
    parser.add_argument("--soc", required=True, metavar="S", help="e.g. qcs6490; `edge_app model socs` lists them")
    parser.add_argument("--plan", required=True, choices=["htp", "hybrid", "cpu"], help="which plan was tried")
    parser.add_argument("--loads", required=True, choices=["yes", "no"], help="whether it loads and its canary holds")
    parser.add_argument("--firmware", default="", metavar="F", help="of the board, e.g. its image's version")
    parser.add_argument("--driver", default="", metavar="D", help="of the NPU, e.g. FastRPC's version")
    parser.add_argument("--versions", default="", metavar="V", help="of the runtime (default: those installed here)")
    parser.add_argument("--latency-ms", type=above_zero, metavar="MS", help="of one inference, median")
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="when it was seen (default: today)")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else is worth knowing")


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="DIR", help="where (default: models)")


def _add_socs(parser: argparse.ArgumentParser) -> None:
    del parser  # the table has no arguments


def _add_push(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    _add_node(parser)


def _add_activate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", metavar="NAME@VERSION", help="as `push` or `status` gives it")
    _add_node(parser)


def _add_prefer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="htp, hybrid or cpu; any: as the scheduler sees fit")
    _add_node(parser)


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--line", default=COMMANDS, metavar="ENDPOINT", help=f"where the node takes commands (default: {COMMANDS})"
    )
    add_keys(parser)
