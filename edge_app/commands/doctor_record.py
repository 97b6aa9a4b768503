"""`edge_app doctor --record`: a pipeline's plans are loaded, proven and timed here, and noted in its model."""

from __future__ import annotations

import datetime
import statistics
from typing import Any

from edge_app.canary import Canary, load_canary
from edge_app.config.manifest import BoardRecord
from edge_app.config.pipeline import Pipeline
from edge_app.config.save import add_board
from edge_app.engine import Engine
from edge_app.errors import ConfigError, EdgeAppError
from edge_app.health import Finding, Grade
from edge_app.model import resolve_for
from edge_app.placed import hold_lock
from edge_app.plans import plan_options
from edge_app.recipes import Recipes
from edge_app.scheduler.policy import NPU_PLANS
from edge_app.verdict import PlanKind

RUNS = 20
NO_SOC = "none"


def record_plans(pipeline: Pipeline, findings: list[Finding], versions: str) -> list[Finding]:
    """Appends a line for each plan to the model's compatibility table; tells what was noted.

    Plans on the simulated HTP are left out: the table is of what was seen on boards.

    Raises:
        ConfigError: the pipeline's model has no manifest, or is two.
        RuntimeFault: another process has the NPU.
    """
    card = resolve_for(pipeline)
    if card.folder is None or pipeline.detector is not None:
        raise ConfigError(
            "only a model with a manifest has a compatibility table",
            where="--record",
            wanted="a pipeline with one model, given by its folder",
            got=str(card.file) if card.folder is None else "a pipeline with two models",
        )
    options = plan_options(pipeline, card, Recipes(pipeline, "doctor", card).thresholds)
    hold_lock(pipeline, options)
    canary = load_canary(card)
    told = []
    for plan, opener in options.openers.items():
        if plan in NPU_PLANS and options.simulated:
            told.append(Finding("record", Grade.NOTE, f"plan {plan}: simulated here, so it is not noted"))
            continue
        record = _seen(plan, opener, canary, options.soc or NO_SOC, board_name(findings), versions)
        add_board(card.folder, record)
        grade = Grade.OK if record.loads else Grade.WARN
        speed = "" if record.latency_ms is None else f", {record.latency_ms:g} ms"
        text = f"plan {plan}: {'loads' if record.loads else 'does not load'}{speed}; noted in {card.folder}"
        told.append(Finding("record", grade, text, record.note or None))
    return told


def board_name(findings: list[Finding]) -> str:
    """The board as the checks have found it: its own name, else the machine's."""
    texts = {finding.check: finding.text for finding in findings}
    return texts.get("board", texts["machine"])


def _seen(plan: PlanKind, opener: Any, canary: Canary | None, soc: str, board: str, versions: str) -> BoardRecord:
    latency_ms, note = None, ""
    try:
        engine: Engine = opener()
        try:
            engine_ms = [us / 1000 for us in engine.warm_up(engine.bind(), RUNS)]
            latency_ms = round(statistics.median(engine_ms), 3)
            wrong = None if canary is None else canary.prove(engine)
            note = "no canary" if canary is None else "" if wrong is None else f"the canary failed: {wrong}"
            loads = wrong is None
        finally:
            engine.session.close()
    except EdgeAppError as error:
        loads, note = False, error.brief
    today = datetime.date.today().isoformat()
    return BoardRecord(
        board=board, soc=soc, plan=plan, loads=loads, date=today, versions=versions, latency_ms=latency_ms, note=note
    )
