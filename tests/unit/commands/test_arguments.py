"""Arguments that can't be meant are refused before any work, by the name that was typed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from edge_app.cli import COMMANDS, command_parser, main
from edge_app.commands.arguments import share
from edge_app.commands.report import print_table, widths


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


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--pipeline", ""], "--pipeline"),
        (["--pipeline="], "--pipeline="),
        (["check", ""], "check"),
        (["model", "compile", "mine", "--soc", ""], "--soc"),
        ([""], ""),
    ],
)
def test_an_argument_that_a_shell_left_empty_is_no_folder(
    words: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert f"{where}: an argument is empty".removeprefix(": ") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pipelin", "x.yaml"], "required: --pipeline"),
        (["check", "--schem"], "unrecognized arguments: --schem"),
        (["journal", "stats", "x.db", "--epo", "1"], "unrecognized arguments: --epo"),
    ],
)
def test_an_option_is_its_whole_word(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["watch", "--count", "x"], "--count: wanted a whole number above 0, got x"),
        (["watch", "--timeout", "x"], "--timeout: wanted a number above 0, got x"),
        (["eval-mirror", "x.yaml", "--pictures", "x", "--seed", "-1"], "--seed: wanted a whole number from 0 on"),
    ],
)
def test_what_is_no_number_is_told_as_what_is_too_small(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["eval", "--model", "x", "--data", "x", "--soc", "qcs8550"], "--soc: only --runtime qnn"),
        (["eval", "--model", "x", "--data", "x", "--plan", "hybrid"], "--plan: only --runtime qnn"),
        (["eval", "--model", "x", "--data", "x", "--runtime", "qnn"], "wanted: --soc S"),
        (["eval-classes", "--model", "x", "--pictures", "x", "--runtime", "qnn"], "wanted: --soc S"),
        (
            ["eval-classes", "--model", "x", "--pictures", "x", "--runtime", "quantized", "--soc", "x"],
            "got: --runtime q",
        ),
        (["watch", "--node", "l1"], "wanted: LINE/STATION"),
        (["calibration", "guard", "--from", ".", "--frames", "3", "--out", "x"], "--frames belongs to --pipeline"),
        (["profile", "x.yaml", "--trace", "."], "can't write the trace"),
        (["journal", "stats", "."], "got: Is a directory"),
        (["journal", "stats", "nothing.db"], "got: No such file or directory"),
        (["line.yaml"], "did you mean `edge_app --pipeline line.yaml`?"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../mine", "Mine", "-", "mine.onnx"])
def test_a_new_model_s_name_is_no_path(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    words = ["model", "import", "x.onnx", f"--name={name}", "--task", "detect", "--models", str(tmp_path / "models")]
    assert main(words) == 2
    assert "--name: not a name for a model" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_layers_to_raise_need_mixed_activations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    assert main(["model", "quantize", str(tmp_path), "--calibration", str(tmp_path), "--raise", "conv1"]) == 2
    assert "--raise: only mixed activations" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_says_what_the_command_does(command: str) -> None:
    parser = command_parser(command)
    verbs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for one in [parser, *(sub for action in verbs for sub in action.choices.values())]:
        assert one.description, one.prog


def test_brackets_in_a_table_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("of [bold]", ("[red]", "b"), [("[[client]]", "[/]")])
    shown = capsys.readouterr().out
    assert "of [bold]" in shown
    assert "[red]" in shown
    assert "[[client]]" in shown
    assert "[/]" in shown


def test_a_table_has_no_python_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", {"LATE": 2, "OK": 30}), ("b", ["x", 1.5]), ("c", True), ("d", None), ("e", {}), ("f", (0.5, 1.0))]
    print_table("", ("", ""), rows)
    shown = [line.split("│")[2].strip() for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert shown == ["LATE 2, OK 30", "x, 1.5", "yes", "-", "-", "0.5, 1.0"]


@pytest.mark.parametrize(
    ("rows", "room", "expected"),
    [
        ([("plan", "MB"), ("htp qcs8550", "1")], 20, [None, None]),  # it fits
        ([("plan", "what it is"), ("htp qcs8550", "one two three four five")], 18, [7, 11]),  # no word is broken
        ([("epoch", "ended"), ("f6526a82bf10fe5b", "not (yet)")], 15, [10, 5]),  # but that of the longest column
        ([("", ""), ("key", "")], 1, [1, 1]),
    ],
)
def test_a_table_that_does_not_fit_breaks_lines_between_words(
    rows: list[tuple[str, ...]], room: int, expected: list[int | None]
) -> None:
    assert widths(rows, room) == expected
