"""Which recipe a start takes, by the note of the last run."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from edge_app.config.pipeline import Pipeline
from edge_app.model import resolve
from edge_app.recipe_kept import KeptRecipe
from edge_app.recipes import Recipes


@pytest.fixture
def recipes(toy_model: Path, tmp_path: Path) -> Recipes:
    (tmp_path / "lenient.yaml").write_text("judge: {classes: {bright: {max_count: 5}}}\n")
    pipeline = Pipeline.model_validate(
        {"camera": {"type": "synthetic"}, "model": {"path": str(toy_model)}, "limits": {"pacing": "offline"},
         "recipes": {"lenient": str(tmp_path / "lenient.yaml")}}, strict=False,
    )  # fmt: skip
    return Recipes(pipeline, "line", resolve(pipeline.model, pipeline.preprocess))


def test_the_recipe_that_was_kept_is_taken_and_without_one_the_pipelines_own(recipes: Recipes, tmp_path: Path) -> None:
    kept = KeptRecipe(tmp_path / "line.models" / "recipe.json")
    assert kept.at_start(recipes) == (recipes.own, ())
    assert kept.keep(recipes.others["lenient"]) is None
    assert kept.at_start(recipes) == (recipes.others["lenient"], ())
    assert kept.keep(recipes.own) is None
    assert kept.at_start(recipes) == (recipes.own, ())


def test_one_that_was_changed_is_taken_and_told(
    recipes: Recipes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"name": "lenient", "rev": "sha256:before"}))
    with caplog.at_level(logging.WARNING):
        assert KeptRecipe(tmp_path / "recipe.json").at_start(recipes) == (recipes.others["lenient"], ())
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning == f"recipe lenient has changed since: it is {recipes.others['lenient'].rev}, and was sha256:before"


GARBLED = ("", "{", "[]", "{}", '{"name": "winter", "rev": "sha256:0"}', "\x00\x00", "[" * 100_000)


@pytest.mark.parametrize("text", GARBLED, ids=range(7))
def test_what_can_not_be_taken_is_an_alarm_and_the_pipelines_own_judges(
    recipes: Recipes, tmp_path: Path, text: str
) -> None:
    (tmp_path / "recipe.json").write_text(text)
    recipe, (alarm,) = KeptRecipe(tmp_path / "recipe.json").at_start(recipes)
    assert recipe is recipes.own
    assert alarm.name == "RECIPE_NOT_KEPT"
    assert alarm.text.endswith("; the pipeline's own, line, is in force")
