"""Validate a pipeline without a camera, and print it resolved: every key, its value, and what it means.

examples:
  edge_app check pipelines/defect.yaml
  edge_app check pipelines/defect.yaml --set runtime.provider=qnn --set runtime.soc=qcs8550
  edge_app check /etc/edge_app/hall2                    a folder: the lines of one board
  edge_app check --schema > pipeline.schema.json        for editors that complete YAML

It loads the model. While a line of this board uses the NPU: --set runtime.provider=cpu
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edge_app.commands.arguments import add_overrides
from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.base import without_password
from edge_app.config.lines import load_lines
from edge_app.config.pipeline import Pipeline, is_live
from edge_app.config.places import told_with_line
from edge_app.errors import CameraError, ConfigError, ExitCode, ModelError

if TYPE_CHECKING:
    from edge_app.model import ModelCard
    from edge_app.plans import StartAlarm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `edge_app check`."""
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="pipeline YAML, or a folder of them;"
                        " of several, also whether they can run as lines of one board")  # fmt: skip
    add_overrides(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of pipelines and stop")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Checks; exit 0 if all holds, else the error's code."""
    if args.schema:
        print_json(Pipeline.model_json_schema())
        return int(ExitCode.OK)
    if not args.files:
        raise ConfigError("which pipeline?", wanted="edge_app check FILE", got="no file")
    checked = []
    for file, line in load_lines(args.files, args.overrides):
        with told_with_line(line):
            checked.append((file, line, check(line, file)))
    if args.json:
        told = [{"file": str(file), "pipeline": line.model_dump(mode="json"), **facts} for file, line, facts in checked]
        print_json({"ok": True, **(told[0] if len(told) == 1 else {"lines": told})})
        return int(ExitCode.OK)
    for file, line, facts in checked:
        print_table(f"{file}: resolved", ("key", "value", "what it is"), list(described(line, ())))
        print_table("What it comes to", ("", ""), facts.items())
    people().print("ok: everything that can be checked without a camera holds", style="green")
    return int(ExitCode.OK)


def check(pipeline: Pipeline, file: Path) -> dict[str, Any]:
    """All that `edge_app --pipeline` would refuse, but for what it takes a camera, free ports or keys to tell.

    Raises:
        EdgeAppError: the first thing that does not hold.
    """
    from edge_app.app import recipe_name, without_guard
    from edge_app.judge import make_recipe
    from edge_app.model import resolve_for
    from edge_app.placed import place_model

    refuse_absent_source(pipeline)
    card = resolve_for(pipeline)
    rules = make_recipe(pipeline.judge, card.labels, card.score, card.marginal)
    placed = place_model(pipeline, card, recipe_name(file))
    camera = pipeline.camera
    live = camera.type == "gige" or (camera.type == "video" and is_live(camera.path, camera.live))
    simulated = placed.simulated or pipeline.limits.pacing == "offline" or not live
    by_label = {
        "fail_at": {label: round(float(s), 4) for label, s in zip(card.labels, rules.score, strict=True)},
        "unknown_at": {label: round(float(s), 4) for label, s in zip(card.labels, rules.marginal, strict=True)},
    }
    try:
        refuse_open_addresses(pipeline, simulated)
        return {
            "model": card.name,
            "labels": list(card.labels),
            "head": card.head.kind,
            "input": f"{card.input.dtype} {card.input.layout} {card.input.width}x{card.input.height} {card.input.color}"
            f" {card.input.fit}",
            **(by_label if pipeline.decision is None else {"name_at": pipeline.decision.name_at}),
            "guard": without_guard(pipeline) or pipeline.judge.model_dump(mode="json")["guard"],
            "plans": [kind.value for kind in placed.engines],
            "degraded": sorted(placed.degraded()),
            "alarms": [f"{one.name}: {one.text}" for one in [*placed.alarms, *alarms_on_a_board(pipeline, card)]],
            "simulated": simulated,
        }
    finally:
        placed.stop()


def refuse_absent_source(pipeline: Pipeline) -> None:
    """Raises CameraError for pictures or a video that are not there. Streams and devices are the start's business."""
    camera = pipeline.camera
    if camera.type == "folder":
        from edge_app.camera.folder import list_pictures

        list_pictures(camera)
        return
    path = str(getattr(camera, "path", ""))
    if camera.type not in ("video", "mirror") or is_live(path, None):
        return
    if not Path(path).exists():
        raise CameraError(
            "there is no such file or folder",
            where=path,
            wanted="pictures, a video file, an rtsp:// URL or /dev/videoN",
            got=f"nothing at {path}",
            remedy="check camera.path: a relative one begins at the YAML",
        )


def alarms_on_a_board(pipeline: Pipeline, card: ModelCard) -> list[StartAlarm]:
    """What a line with `provider: auto` would start with on the board that it names, though this machine is none."""
    from edge_app.plans import npu_fault, npu_plans

    if pipeline.runtime.provider != "auto" or pipeline.runtime.soc is None:
        return []
    try:
        npu_plans(card, pipeline.runtime.soc)
    except ModelError as error:
        return [npu_fault(f"{error.what}: {error.wanted}; {error.remedy}")]
    return []


def refuse_open_addresses(pipeline: Pipeline, simulated: bool) -> None:
    """Raises ConfigError for an address of wire or page that is none, or that others could reach without being asked.

    The files of keys and token may be there for the service alone: `edge_app keys check` looks into them.
    """
    from edge_app.monitor.access import Access, parse_address
    from edge_app.results.endpoint import check_endpoint

    results, monitor = pipeline.results, pipeline.monitor
    for key, endpoint in (("publish", results.publish), ("commands", results.commands)):
        if endpoint is not None:
            check_endpoint(
                endpoint,
                key,
                secured=results.security.key is not None,
                simulated=simulated,
                allow_simulated=results.allow_simulated_off_loopback,
            )
    if monitor.http is not None:
        host, _ = parse_address(monitor.http)
        if monitor.token_file is None:
            Access(host, None)


def described(section: BaseModel, keys: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Key, value and description of every field, sections opened up."""
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from described(value, (*keys, name))
        else:
            yield ".".join((*keys, name)), shown(value), info.description or info.title or ""


def shown(value: object) -> str:
    """A value as a person writes it in YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, BaseModel):
        return f"{{{', '.join(f'{key}: {shown(item)}' for key, item in value if key in value.model_fields_set)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return without_password(str(value))
