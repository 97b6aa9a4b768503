"""Arguments that can't be meant are refused before any work, by the name that was typed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from edge_app.cli import COMMANDS, command_parser, main
from edge_app.commands.arguments import share


@pytest.mark.parametrize(("text", "value"), [("0.5%", 0.005), ("0.005", 0.005), ("0", 0.0)])
def test_a_share_is_given_in_either_way(text: str, value: float) -> None:
    assert share(text) == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["watch", "--count", "0"], "--count: wanted a whole number above 0"),
        (["model", "verify", "mine", "--loss", "150%"], "--loss: wanted a share"),
        (["model", "verify", "mine", "--loss", "nan"], "--loss: wanted a share"),
        (["model", "quantize", "mine", "--calibration", ".", "--target-loss", "much"], "--target-loss"),
    ],
)
def test_what_can_not_be_meant_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert told in capsys.readouterr().err


def test_a_plot_of_nothing_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    words = ["model", "quantize", str(tmp_path), "--calibration", str(tmp_path), "--plot", str(tmp_path / "plot.png")]
    assert main(words) == 2
    assert "--plot: there is no error by layer to draw" in capsys.readouterr().err


def _parsers(parser: argparse.ArgumentParser, name: str) -> list[tuple[str, argparse.ArgumentParser]]:
    found = [(name, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [one for verb, sub in action.choices.items() for one in _parsers(sub, f"{name} {verb}")]
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_says_what_it_is(command: str) -> None:
    for name, parser in _parsers(command_parser(command), command):
        silent = [
            action.dest
            for action in parser._actions
            if not action.help and not isinstance(action, argparse._SubParsersAction)
        ]
        assert (name, silent) == (name, [])
