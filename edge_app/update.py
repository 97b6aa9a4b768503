"""Live update: another version of the model comes in while the line runs, and goes again by itself if it fails.

1. Staged (edge_app.staging): received into the store, every digest, the manifest and the line's needs checked.
2. Loaded beside the running model, on a thread of its own: sessions, warm-up, and on every plan the canary. The same
   labels in the same order, the same input size and framing, no plan fewer; else it is refused, with what differs.
3. Swapped between two frames: one assignment (edge_app.in_force). Frames in flight end with the model they began with.
   The recipe in force keeps its name; its revision changes with the operating scores, which belong to the model.
4. Watched for `update.watch_frames` frames, with the old model still loaded. A result INVALID_OUTPUT, RUNTIME_FAULT or
   INTERNAL, a plan that fails, or `update.most_late` more frames not in time than before: the old model comes back
   between two frames, with the alarm UPDATE_FAILED and the reason.
5. Only then written down (edge_app.store), so a power cut or a crash before that starts with the old version, and the
   alarm. The old sessions are let go when no frame uses them any more.

A rollback that somebody asks for is loaded, proven and swapped in the same way, and stays. Whatever fails before the
swap changes nothing but the alarm; so does a load that has not ended after `update.load_s`, and until it comes back
there is no other update but by a restart. No frame waits for any of this; on the CPU plan loading takes cores, so
frames may be late meanwhile, and are told so. A line that decides over many frames is stopped, changed and started
instead; of a pipeline with two models, `model` is the one that can be updated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from edge_app import threads
from edge_app.camera import Camera
from edge_app.config.pipeline import Pipeline
from edge_app.errors import EdgeAppError, ModelError, scarcity
from edge_app.in_force import Fitted, fit
from edge_app.line import Line
from edge_app.loading import Loading
from edge_app.model import ModelCard, resolve
from edge_app.placed import Placed, place_model
from edge_app.probation import Probation, Punctuality
from edge_app.recipes import Recipes
from edge_app.results import ModelIdentity, Outlet
from edge_app.sealing import Ticket
from edge_app.staging import Staging
from edge_app.store import ModelStore
from edge_app.update_checks import (
    model_in,
    refuse_hung,
    refuse_lesser,
    refuse_other_lines,
    refuse_other_shape,
    refuse_without_canary,
)
from edge_app.verdict import Judgement

log = logging.getLogger(__name__)
ALARM = "UPDATE_FAILED"
OWN = "the pipeline's own model"
LET_GO_S = 10.0
"""A run that hangs may hold a model's buffers for ever: after this its sessions are left to it."""


class Stage(StrEnum):
    """How far an update is. The last three are its end."""

    LOADING = "loading"
    WATCHING = "watching"
    IN_FORCE = "in_force"
    REFUSED = "refused"
    ROLLED_BACK = "rolled_back"


ENDS = (Stage.IN_FORCE, Stage.REFUSED, Stage.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Progress:
    """The update that goes on, or the last one."""

    number: int
    """In this run of the node."""
    version: str | None
    """That is to come; None: the pipeline's own model."""
    stage: Stage
    text: str = ""


@dataclass(frozen=True, eq=False)
class Running:
    """A model at work."""

    version: str | None
    """None: the pipeline's own."""
    card: ModelCard
    placed: Placed
    fitted: Fitted

    @property
    def name(self) -> str:
        """For people."""
        return self.version or OWN


class Node(Protocol):
    """What an update changes."""

    pipeline: Pipeline
    name: str
    """Of the pipeline's own recipe."""
    camera: Camera
    running: Running
    line: Line
    outlet: Outlet

    def take_over(self, running: Running) -> None:
        """From the next frame on."""


class NotNow(EdgeAppError):
    """No update can be begun: another one goes on, or there is nothing to go to."""


class Updates:
    """The updates of one line, one at a time, each on a thread of its own."""

    def __init__(self, node: Node, store: ModelStore) -> None:
        self._node, self.store = node, store
        self.staging = Staging(store, self._could_run)
        self.progress: Progress | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._probation: Probation | None = None
        self._punctuality, self._late_before = Punctuality(), 0.0
        self._loading: Loading[Running] | None = None
        self._thread: threading.Thread | None = None

    def saw(self, ticket: Ticket, judgement: Judgement) -> None:
        """Every result of the line; see Sealer.saw."""
        probation = self._probation
        if probation is None:
            self._punctuality.saw(ticket, judgement)
        else:
            probation.saw(ticket, judgement)

    # -- asked for --------------------------------------------------------------------------------------------------

    def announce(self, name: str, sums: str, size: int) -> tuple[str, bool]:
        """A version will be pushed; see Staging.begin. Refused at once where it could never be activated."""
        refuse_other_lines(self._node.pipeline)
        return self.staging.begin(name, sums, size)

    def activate(self, version: str) -> Progress:
        """Begins to bring a stored version in; returns at once.

        Raises:
            NotNow: another update goes on, it is in force already, or it is not in the store.
        """
        if version == self._node.running.version and self._probation is None:
            raise NotNow(f"{version} is in force already")
        if version not in (stored := self.store.versions()):
            raise NotNow(f"{version} is not in the store; there are: {', '.join(stored) or 'none: push one first'}")
        before = tuple(other for other in self._in_force() if other != version)
        return self._begin(version, (version, *before), watched=True)

    def roll_back(self, who: str) -> Progress:
        """Back to what was in force before: at once if a new version is still watched, else it is loaded and proven.

        It is an order, so the frames that come then are not watched: nothing brings back what was sent away.

        Raises:
            NotNow: a version is being loaded, or there is nothing before.
        """
        with self._lock:
            probation, progress = self._probation, self.progress
            if probation is not None and progress is not None:
                probation.ordered = True
                probation.end(f"rolled back by {who}")
                return progress
        versions = self._in_force()
        if not versions:
            raise NotNow(f"{self._node.running.name} is in force: there is nothing to go back to")
        return self._begin(versions[1] if len(versions) > 1 else None, versions[1:], watched=False)

    def stop(self) -> None:
        """Ends with the node. A version that is still watched is not in force for the next start."""
        self._stopped.set()
        if self._probation is not None:
            self._probation.over.set()
        elif self._thread is None or not self._thread.is_alive():
            self.store.end_trial()  # one of a run before: this one has told it
        if self._thread is not None:
            self._thread.join(0.5)

    def status(self) -> dict[str, Any]:
        """JSON data: what is in force, what is stored, and how the last update went."""
        progress, probation = self.progress, self._probation
        watched = None if probation is None else {
            "inspected": probation.inspected, "of": probation.frames, "late": probation.late,
        }  # fmt: skip
        return {
            "running": self._node.running.version,
            "model": self._node.running.card.name,
            "in_force": list(self._in_force()),
            "stored": self.store.versions(),
            "update": None if progress is None else {
                "number": progress.number, "version": progress.version, "stage": progress.stage,
                "text": progress.text, "watched": watched,
            },
        }  # fmt: skip

    def _in_force(self) -> tuple[str, ...]:
        """As the store has it, from the version on that this run began with: one that is damaged is passed over."""
        try:
            versions, running = self.store.in_force(), self._node.running.version
        except ModelError as error:  # the next activation writes it anew
            log.error("%s", error)
            return ()
        if self._probation is not None or running in versions[:1]:
            return versions
        return versions[versions.index(running) :] if running in versions else ()

    # -- one update -------------------------------------------------------------------------------------------------

    def _begin(self, version: str | None, then: tuple[str, ...], *, watched: bool) -> Progress:
        with self._lock:
            last = self.progress
            if last is not None and last.stage not in ENDS:
                raise NotNow(f"version {last.version or OWN} is {last.stage}: one update at a time")
            if self._loading is not None and self._loading.hangs:
                raise NotNow(f"{self._loading.what} has hung, so nothing new can be proven: restart needed")
            self._node.outlet.alarm(ALARM, False, "another update has begun", "")
            self.store.end_trial()  # what a run before was cut off at is history
            begun = self.progress = Progress(1 if last is None else last.number + 1, version, Stage.LOADING)
            swap = self._try_out if watched else self._take_back
            thread = threads.daemon(self._update, "update", (version, then, swap))
            try:
                thread.start()
            except RuntimeError as error:  # the next try may find one
                self.progress = last
                raise NotNow(f"there is no thread for it: {error}") from error
            self._thread = thread
            return begun

    def _update(
        self, version: str | None, then: tuple[str, ...], swap: Callable[[Running, tuple[str, ...]], None]
    ) -> None:
        old, self._late_before = self._node.running, self._punctuality.share
        self._lasting = False
        try:
            swap(self._loaded_in_time(version), then)
        except EdgeAppError as error:
            self._failed(Stage.REFUSED, version, "; ".join(error.text().splitlines()))
        except Exception as error:
            scarce = scarcity(error)
            if scarce is None:
                log.exception("the update failed")
            if self._lasting:  # what is left is to tidy up: the next start takes the new version, and so does this run
                self.store.end_trial()
                self._tell(Stage.IN_FORCE, f"tidying up failed: {type(error).__name__}: {error}".rstrip(": "))
                return
            self._probation = None
            self._node.take_over(old)
            self.store.end_trial()
            bug = f"{type(error).__name__}: {error}; this is a bug, see the log"
            self._failed(Stage.REFUSED, version, bug if scarce is None else scarce.brief)

    def _loaded_in_time(self, version: str | None) -> Running:
        def let_go(running: Running) -> None:
            running.placed.retire()

        self._loading = Loading(partial(self._loaded, version), let_go, f"loading {version or OWN}")
        return self._loading.result(self._node.pipeline.update.load_s)

    def _loaded(self, version: str | None) -> Running:
        node = self._node
        refuse_other_lines(node.pipeline)
        refuse_hung(node.running.placed)
        model = node.pipeline.model if version is None else model_in(self.store.checked(version), node.pipeline.model)
        width, height = node.camera.width, node.camera.height
        frame = None if width is None or height is None else (width, height)
        card = resolve(model, node.pipeline.preprocess, frame)
        refuse_other_shape(node.running.card, card)
        if version is not None:
            refuse_without_canary(card)
        pipeline = node.pipeline.model_copy(update={"model": model})
        placed = place_model(pipeline, card, node.name, beside=node.running.placed)
        try:
            refuse_lesser(node.running.placed, placed)
            return fitted(pipeline, version, card, placed)
        except BaseException:
            placed.retire()
            raise

    def _try_out(self, new: Running, then: tuple[str, ...]) -> None:
        old, section = self._node.running, self._node.pipeline.update
        assert new.fitted.identity is not None
        probation = Probation(new.fitted.identity, section.watch_frames, section.most_late, self._late_before)
        self._tell(Stage.WATCHING)
        self.store.put_on_trial(new.name)
        self._probation = probation
        self._swap(new)
        while not probation.over.wait(1.0) and not self._stopped.is_set():
            pass
        if self._stopped.is_set():
            old.placed.halt()
            return
        with self._lock:
            self._probation, failure = None, probation.failure
        failure = failure or self._made_to_last(then)
        if failure is not None:
            self._node.take_over(old)
        self.store.end_trial()
        if failure is None:
            self.store.forget_old({new.version or ""})  # first: the next update may be to what would go
            self._tell(Stage.IN_FORCE, f"{probation.inspected} frames inspected, {probation.late} not in time")
        elif probation.ordered:
            self._tell(Stage.ROLLED_BACK, failure)
        else:
            self._failed(Stage.ROLLED_BACK, new.version, failure)
        self._let_go(old if failure is None else new)

    def _take_back(self, new: Running, then: tuple[str, ...]) -> None:
        old = self._node.running
        self._swap(new)
        failure = self._made_to_last(then)
        text = f"{new.name} is in force" + (f", but the next start takes {old.name}: {failure}" if failure else "")
        if failure is not None:
            self._node.outlet.alarm(ALARM, True, text, "free some space, then activate or roll back again")
        self._tell(Stage.IN_FORCE, text)
        self._let_go(old)

    def _swap(self, new: Running) -> None:
        self._node.take_over(new)
        if new.placed.mechanic is not None:
            new.placed.mechanic.start()

    def _made_to_last(self, then: tuple[str, ...]) -> str | None:
        """Why it could not be; None: the next start takes the new version."""
        try:
            self.store.put_in_force(then)
        except EdgeAppError as error:
            return error.brief
        self._lasting = True
        return None

    def _let_go(self, model: Running) -> None:
        """Sessions are given back when no frame uses them."""
        end = time.monotonic() + LET_GO_S
        while not self._stopped.wait(0.2) and self._node.line.uses(model.fitted) and time.monotonic() < end:
            pass
        model.placed.retire()

    def _failed(self, stage: Stage, version: str | None, why: str) -> None:
        stays = self._node.running.name
        log.error("update to %s %s: %s", version or OWN, stage, why)
        self._node.outlet.alarm(
            ALARM, True, f"{version or OWN} was {stage.replace('_', ' ')}: {why}",
            f"the line runs on with {stays}; correct the model, then push and activate it again",
        )  # fmt: skip
        self._tell(stage, why)

    def _tell(self, stage: Stage, text: str = "") -> None:
        assert self.progress is not None
        self.progress = replace(self.progress, stage=stage, text=text)

    # -- what is pushed ---------------------------------------------------------------------------------------------

    def _could_run(self, folder: Path) -> None:
        """Raises EdgeAppError if this line could not run the model of a folder."""
        node = self._node
        refuse_other_lines(node.pipeline)
        card = resolve(model_in(folder, node.pipeline.model), node.pipeline.preprocess)
        refuse_other_shape(node.running.card, card)
        refuse_without_canary(card)

    def revisions(self, version: str) -> dict[str, str]:
        """By recipe, the revision that results will have with a stored version: for controllers, before it comes in."""
        node = self._node
        model = model_in(self.store.folder / version, node.pipeline.model)
        card = resolve(model, node.pipeline.preprocess)
        recipes = Recipes(node.pipeline.model_copy(update={"model": model}), node.name, card)
        return {one.name: one.rev for one in (recipes.own, *recipes.others.values())}

    def in_use(self) -> set[str]:
        """Versions that are not to be removed, whatever the store says."""
        progress = self.progress
        return {self._node.running.version or "", (progress and progress.version) or ""}


def fitted(pipeline: Pipeline, version: str | None, card: ModelCard, placed: Placed) -> Running:
    """A loaded model, with buffers for every slot of the line."""
    identity = ModelIdentity(card.name, card.sha256, placed.soc, version)
    model = fit(placed.engines, placed.placer, pipeline.limits.slots, identity)
    if placed.mechanic is not None:
        placed.mechanic.install = model.install
    return Running(version, card, placed, model)
