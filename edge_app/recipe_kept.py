"""The recipe in force, kept over a restart: who activated it expects it to judge until another one is activated.

Its name lies beside the model's versions (edge_app.store), as recipe.json. A start takes the recipe of that name as its
file stands now. Where there is no such recipe any more, or the note can't be read, the pipeline's own judges, with the
alarm RECIPE_NOT_KEPT: results name the recipe and its revision, and controllers reject those that they don't expect.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from edge_app.durable import replace_durably
from edge_app.plans import StartAlarm
from edge_app.recipes import Prepared, Recipes

log = logging.getLogger(__name__)
ALARM = "RECIPE_NOT_KEPT"


@dataclass(frozen=True)
class KeptRecipe:
    """The note of one pipeline."""

    file: Path

    def keep(self, recipe: Prepared) -> str | None:
        """Why the next start will not take this recipe; None: it will, whatever happens now."""
        try:
            replace_durably(self.file, json.dumps({"name": recipe.name, "rev": recipe.rev}))
        except OSError as error:
            log.error("%s can't be written: %s", self.file, error)
            return f"{self.file} can't be written: {error.strerror or error}"
        return None

    def at_start(self, recipes: Recipes) -> tuple[Prepared, tuple[StartAlarm, ...]]:
        """The recipe that a start takes, and an alarm if it is not the one that was in force."""
        try:
            fields = json.loads(self.file.read_text(encoding="utf-8"))
            name, rev = str(fields["name"]), str(fields["rev"])
        except FileNotFoundError:
            return recipes.own, ()
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return self._own(recipes, f"{self.file} can't be read ({error})")
        if name != recipes.own.name and name not in recipes.others:
            return self._own(recipes, f"recipe {name}, which was in force, is not in this pipeline any more")
        recipe = recipes.ready(name)
        log.info("recipe %s is in force, as it was activated", name)
        if recipe.rev != rev:
            log.warning("recipe %s has changed since: it is %s, and was %s", name, recipe.rev, rev)
        return recipe, ()

    def _own(self, recipes: Recipes, why: str) -> tuple[Prepared, tuple[StartAlarm, ...]]:
        text = f"{why}; the pipeline's own, {recipes.own.name}, is in force"
        log.error("%s", text)
        return recipes.own, (StartAlarm(ALARM, text, "activate the recipe that is wanted"),)
