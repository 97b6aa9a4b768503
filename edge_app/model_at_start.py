"""Which model a line starts with: the stored version in force, or the pipeline's own."""

from __future__ import annotations

import logging

from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError, ModelError
from edge_app.model import ModelCard, resolve, resolve_for
from edge_app.plans import StartAlarm
from edge_app.store import ModelStore, store_of
from edge_app.update import ALARM, OWN
from edge_app.update_checks import model_in

log = logging.getLogger(__name__)


def model_at_start(pipeline: Pipeline, name: str) -> tuple[ModelCard, str | None, tuple[StartAlarm, ...]]:
    """The model that a start takes, its version, and an alarm if it is not the one that should be in force.

    A stored version that is damaged gives way to the one before it, at last to the pipeline's own; so does a whole
    store that can't say which one is in force.

    Raises:
        RuntimeFault: another process has the store.
        EdgeAppError: the pipeline's own can't be had.
    """
    store, alarms = store_of(pipeline, name), list[StartAlarm]()
    versions: tuple[str, ...] = ()
    store.hold()
    store.sweep()
    try:
        versions = store.in_force()
    except ModelError as error:
        log.error("the pipeline's own model is taken: %s", error)
        text = f"{error.where}: {error.what} ({error.got}); {OWN} is in force"
        alarms.append(StartAlarm(ALARM, text, "activate the version that is wanted"))
    for version in versions:
        try:
            card = resolve(model_in(store.checked(version), pipeline.model), pipeline.preprocess)
            log.info("%s is in force, as it was activated", version)
            return card, version, tuple(alarms) or cut_off(store, version)
        except (ModelError, ConfigError) as error:
            log.error("%s can't be taken, the one before it is: %s", version, error)
            alarms.append(StartAlarm(ALARM, f"{version} can't be taken: {error.what}", "push and activate it again"))
    return resolve_for(pipeline), None, tuple(alarms[:1]) or cut_off(store, None)


def cut_off(store: ModelStore, version: str | None) -> tuple[StartAlarm, ...]:
    """An alarm if the node ended, or was ended by, another version that was still watched."""
    tried = store.on_trial()
    if tried is None:
        return ()
    if tried == version:  # cut off between the two notes
        store.end_trial()
        return ()
    text = f"{tried} was still watched when the node ended, so it is not in force: {version or OWN} is"
    log.warning("%s", text)
    return (StartAlarm(ALARM, text, "see in the log why the node ended; activate it again, if it was not to blame"),)
