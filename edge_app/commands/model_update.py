"""`edge_app model push|activate|rollback|prefer|status`: another version of the model, or plan, at a node that runs."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_app.client import CommandRefused, Line, NoAnswer
from edge_app.commands.report import people, print_json, print_table
from edge_app.commands.watch import load_keys
from edge_app.config.load import load_manifest
from edge_app.config.manifest import Manifest
from edge_app.errors import BusError, ConfigError, ExitCode, ModelError
from edge_app.model import model_folder
from edge_app.store import bound_files, digests_of, files_of, read_sums, write_sums

PART_BYTES = 40_000
"""As base64 it still fits into a command's 64 KiB."""
ANSWER_S = 20.0
CHECK_S = 300.0
"""The node reads every byte again, and brings it to the disk."""
ASK_EVERY_S = 0.3
ENDS = ("in_force", "refused", "rolled_back")


def run_push(args: argparse.Namespace) -> int:
    """Sends the files that a node needs; it checks them, and stores all of them or none."""
    folder = model_folder(args.name)
    manifest = load_manifest(folder)
    digests = digests_of(folder, files_of(folder, manifest))
    refuse_other_than_bound(folder, manifest, digests)
    sums = write_sums(digests)
    read_sums(sums)
    size = sum((folder / file).stat().st_size for file in digests)
    with connected(args) as line:
        told = ask(line, "stage_model", ANSWER_S, name=manifest.name, sums=sums, bytes=size)
        version = str(told["version"])
        done = told
        if not told["stored"]:
            send_files(line, folder, version, list(digests), size)
            done = ask(line, "stage_done", CHECK_S, version=version)
    document = {
        "version": version, "files": len(digests), "bytes": size, "already_stored": bool(told["stored"]),
        "plans": plans_sent(manifest, digests), "not_made": plans_not_made(manifest, digests),
        "recipes": [f"{name} {rev}" for name, rev in done["recipes"].items()], "removed": list(done.get("removed", [])),
    }  # fmt: skip
    if args.json:
        print_json(document)
    else:
        print_table("Pushed", ("", ""), [(key, listed(value)) for key, value in document.items()])
        print(f"next: edge_app model activate {version} --line {args.line}")
    return int(ExitCode.OK)


def refuse_other_than_bound(folder: Path, manifest: Manifest, digests: Mapping[str, str]) -> None:
    """Raises ModelError if a file is not the one that the manifest binds: found here, nothing has to be sent."""
    for file, sha256 in bound_files(manifest).items():
        if digests.get(file, sha256) != sha256:
            raise ModelError(
                "a file of the model is not the one that its manifest binds", where=str(folder / file),
                wanted=f"sha256 {sha256}", got=f"sha256 {digests[file]}",
                remedy="restore it, or compile the model again",
            )  # fmt: skip


def send_files(line: Line, folder: Path, version: str, files: list[str], size: int) -> None:
    """All files, part by part, with a bar on stderr."""
    from rich.progress import Progress

    with Progress(console=people(), transient=True) as bars:
        bar = bars.add_task(f"sending {version}", total=size)
        for file in files:
            with (folder / file).open("rb") as stream:
                offset = 0
                while data := stream.read(PART_BYTES):
                    text = base64.b64encode(data).decode()
                    ask(line, "stage_part", ANSWER_S, version=version, file=file, offset=offset, data=text)
                    offset += len(data)
                    bars.advance(bar, len(data))


def plans_sent(manifest: Manifest, digests: Mapping[str, str]) -> list[str]:
    """Plans whose files went along, `PLAN SOC`."""
    return [name_of(plan.plan, plan.soc) for plan in manifest.plans if plan.artifacts[0].file in digests]


def plans_not_made(manifest: Manifest, digests: Mapping[str, str]) -> list[str]:
    """Plans that the manifest names and this folder has not: a node compiles nothing, so it would lack them."""
    return [name_of(plan.plan, plan.soc) for plan in manifest.plans if plan.artifacts[0].file not in digests]


def name_of(plan: str, soc: str | None) -> str:
    """A plan as tables show it."""
    return plan if soc is None else f"{plan} {soc}"


def run_activate(args: argparse.Namespace) -> int:
    """Asks for it, and waits until the version is in force or is not."""
    with connected(args) as line:
        begun = ask(line, "activate_model", ANSWER_S, version=args.version)
        told = follow(line, int(begun["number"]))
    show(told, as_json=args.json)
    return int(ExitCode.OK if told["update"]["stage"] == "in_force" else ExitCode.CHECK_FAILED)


def run_rollback(args: argparse.Namespace) -> int:
    """Goes back to the version before; of a version that is still watched, at once."""
    with connected(args) as line:
        begun = ask(line, "rollback_model", ANSWER_S)
        told = follow(line, int(begun["number"]))
    show(told, as_json=args.json)
    wanted = "rolled_back" if begun["stage"] == "watching" else "in_force"
    return int(ExitCode.OK if told["update"]["stage"] == wanted else ExitCode.CHECK_FAILED)


def run_prefer(args: argparse.Namespace) -> int:
    """Asks for a plan; one that is not ready is taken as soon as it is."""
    with connected(args) as line:
        told = ask(line, "prefer_plan", ANSWER_S, plan=args.plan)
    document = {"plan": told["plan"], "ready": told["ready"]}
    if args.json:
        print_json(document)
    else:
        print_table("Plan asked for", ("", ""), [(key, listed(value)) for key, value in document.items()])
    return int(ExitCode.OK)


def run_status(args: argparse.Namespace) -> int:
    """What the node says."""
    with connected(args) as line:
        show(ask(line, "models", ANSWER_S), as_json=args.json)
    return int(ExitCode.OK)


def follow(line: Line, number: int) -> Mapping[str, Any]:
    """What the node tells when the update has ended; Ctrl-C leaves it to the node."""
    from rich.progress import Progress

    with Progress(console=people(), transient=True) as bars:
        bar = bars.add_task("loading and proving", total=None)
        while True:
            told = ask(line, "models", ANSWER_S)
            update = told["update"]
            if update is None or update["number"] != number:
                raise BusError("the node was started again meanwhile", got="another update, or none",
                               remedy="see `edge_app model status`")  # fmt: skip
            if update["stage"] in ENDS:
                return told
            watched = update["watched"]
            if watched is not None:
                bars.update(bar, description="frames watched", total=watched["of"], completed=watched["inspected"])
            time.sleep(ASK_EVERY_S)


def show(told: Mapping[str, Any], *, as_json: bool) -> None:
    """The node's answer: one document, or a table."""
    fields = {key: told[key] for key in ("model", "running", "in_force", "stored", "update")}
    if as_json:
        print_json(fields)
        return
    update = fields.pop("update")
    rows = [(key, listed(value)) for key, value in fields.items()]
    if update is not None:
        version = update["version"] or "the pipeline's own"
        rows.append(("update", f"{version}: {update['stage']}"))
        rows.append(("", update["text"] or watched_text(update["watched"])))
    print_table("Model at the node", ("", ""), rows)


def watched_text(watched: Mapping[str, Any] | None) -> str:
    """How far a version is that is still watched."""
    return "" if watched is None else f"{watched['inspected']} of {watched['of']} frames, {watched['late']} not in time"


def listed(value: object) -> object:
    """A value as a table shows it."""
    return ", ".join(map(str, value)) or "-" if isinstance(value, list) else value


@contextmanager
def connected(args: argparse.Namespace) -> Iterator[Line]:
    """A client of the node that `--line` names."""
    keys = load_keys(args)
    try:
        line = Line(port_before(args.line), args.line, keys=keys)
    except ValueError as error:
        raise ConfigError(str(error), where=f"--line {args.line}") from error
    with line:
        yield line


def port_before(commands: str) -> str:
    """Where a node that takes commands there publishes, by the protocol's defaults."""
    head, _, port = commands.rpartition(":")
    return f"{head}:{int(port) - 1}" if port.isdecimal() else commands


def ask(line: Line, command: str, timeout_s: float, **fields: object) -> Mapping[str, Any]:
    """A command's answer; a refusal as the error that it is.

    Raises:
        ModelError: the node can't take this model, and why.
        ConfigError: this key may not do that, or not now.
        BusError: no answer.
    """
    try:
        return line.command(command, timeout_s, **fields)
    except CommandRefused as refused:
        error = ModelError if refused.code == "CONFLICT" else ConfigError
        raise error(f"the node refused {command}", got=f"{refused.code}: {refused.message}") from refused
    except NoAnswer as silent:
        raise BusError(
            "the node does not answer", got=str(silent), wanted=f"a reply to {command}",
            remedy="is it running there, and are the keys right? `edge_app watch` shows it",
        ) from silent  # fmt: skip
