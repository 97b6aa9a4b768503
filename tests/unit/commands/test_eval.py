"""`edge_app eval` says what its figures do not."""

from __future__ import annotations

from pathlib import Path

from edge_app.commands.eval import remarks


def test_scores_that_were_chosen_without_good_parts_say_so() -> None:
    told = remarks(Path("mine"), ["escapes"], any_good=False)
    assert [text.partition(":")[0] for text in told] == [
        "the scores are in mine/manifest.yaml; a new recipe.rev follows",
        "no defect-free picture was looked at (--good DIR)",
        "no choice of scores holds on this list",
    ]
    assert remarks(None, (), any_good=True) == []
