"""The pipelines of one process: which files are meant, and what two lines can't share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_app.config.lines import load_lines, pipeline_files, refuse_clashes, same_port
from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError


def line(file: str, port: int, **more: Any) -> tuple[Path, Pipeline]:
    """A line with a name, two ports and files of its own; `more` sets sections."""
    results = {"publish": f"tcp://127.0.0.1:{port}", "commands": f"tcp://127.0.0.1:{port + 1}"}
    results |= {"journal": {"path": f"/var/{port}/results.db"}, "evidence": {"path": f"/var/{port}/evidence"}}
    data: dict[str, Any] = {
        "station": {"station": f"st{port}"},
        "camera": {"type": "synthetic"},
        "model": {"path": "models/toy"},
        "limits": {"pacing": "offline"},
        "results": results | more.pop("results", {}),
        **more,
    }
    return Path(file), Pipeline.model_validate(data, strict=False)


def test_two_lines_with_everything_of_their_own() -> None:
    refuse_clashes([line("a.yaml", 5560), line("b.yaml", 5570)])


@pytest.mark.parametrize(
    ("key", "other_key", "more"),
    [
        ("station", "station", {"station": {"station": "st5560"}}),
        ("results.publish", "results.commands", {"results": {"publish": "tcp://127.0.0.1:5561"}}),
        ("results.commands", "results.publish", {"results": {"commands": "tcp://0.0.0.0:5560"}}),
        ("monitor.http", "results.publish", {"monitor": {"http": "127.0.0.1:5560"}}),
        ("results.journal.path", "results.journal.path", {"results": {"journal": {"path": "/var/5560/results.db"}}}),
        ("results.evidence.path", "results.evidence.path", {"results": {"evidence": {"path": "/var/5560/evidence"}}}),
        ("runtime.soc", "qcs8550, as a.yaml", {"runtime": {"provider": "qnn", "soc": "qcs6490"}}),
    ],
)
def test_a_clash_names_both_files_and_keys(key: str, other_key: str, more: dict[str, Any]) -> None:
    first = line("a.yaml", 5560, runtime={"provider": "qnn", "soc": "qcs8550"})
    with pytest.raises(ConfigError) as caught:
        refuse_clashes([first, line("b.yaml", 5570, **more)])
    assert caught.value.where == f"b.yaml: {key}"
    assert "a.yaml" in str(caught.value.wanted)
    assert other_key in str(caught.value.wanted)


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("results.commands", {"results": {"publish": "tcp://127.0.0.1:7000", "commands": "tcp://127.0.0.1:7000"}}),
        ("monitor.http", {"monitor": {"http": "127.0.0.1:5560"}}),
    ],
)
def test_a_line_does_not_clash_with_itself(key: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="one address can't be listened at twice") as caught:
        refuse_clashes([line("a.yaml", 5560, **more)])
    assert (caught.value.where, caught.value.wanted) == (f"a.yaml: {key}", "another one than results.publish")


@pytest.mark.parametrize("way", ["link/evidence", "one/../one/evidence"])
def test_one_place_by_two_ways_is_one_place(tmp_path: Path, way: str) -> None:
    """Each would delete the other's pictures, by its own quota."""
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    ways = [{"results": {"evidence": {"path": str(tmp_path / path)}}} for path in ("one/evidence", way)]
    with pytest.raises(ConfigError) as caught:
        refuse_clashes([line("a.yaml", 5560, **ways[0]), line("b.yaml", 5570, **ways[1])])
    assert caught.value.where == "b.yaml: results.evidence.path"


def test_files_of_one_name_would_share_the_note_that_keeps_the_npu_out() -> None:
    same = {"results": {"journal": {"path": "/var/5560/other.db"}}}
    refuse_clashes([line("one/a.yaml", 5560), line("two/b.yaml", 5570, **same)])
    with pytest.raises(ConfigError, match="the file's name"):
        refuse_clashes([line("one/a.yaml", 5560), line("two/a.yaml", 5570, **same)])


def test_a_line_on_the_cpu_may_name_another_soc() -> None:
    first = line("a.yaml", 5560, runtime={"provider": "qnn", "soc": "qcs8550"})
    refuse_clashes([first, line("b.yaml", 5570, runtime={"provider": "cpu", "soc": "qcs6490"})])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("tcp://127.0.0.1:5560", "127.0.0.1:5560", True),
        ("tcp://localhost:5560", "tcp://127.0.0.1:5560", True),
        ("tcp://*:5560", "tcp://10.0.0.7:5560", True),
        ("tcp://10.0.0.7:5560", "tcp://127.0.0.1:5560", False),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("ipc:///run/a", "ipc:///run/a", True),
        ("ipc:///run/a", "ipc:///run/b", False),
    ],
)
def test_which_addresses_are_one_port(one: str, other: str, same: bool) -> None:
    assert same_port(one, other) is same


class TestFiles:
    """What `--pipeline` may be."""

    def test_a_folder_gives_all_its_pipelines(self, tmp_path: Path) -> None:
        for name in ("b.yaml", "a.yml", "notes.txt", ".hidden.yaml"):
            (tmp_path / name).touch()
        assert pipeline_files(tmp_path) == [tmp_path / "a.yml", tmp_path / "b.yaml"]

    def test_the_ending_may_be_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "l1.yaml").touch()
        assert pipeline_files(tmp_path / "l1") == [tmp_path / "l1.yaml"]
        assert pipeline_files(tmp_path / "l1.yaml") == [tmp_path / "l1.yaml"]

    def test_an_empty_folder_and_one_beside_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "l1").mkdir()
        with pytest.raises(ConfigError, match="no pipeline in this folder"):
            pipeline_files(tmp_path / "l1")
        (tmp_path / "l1.yaml").touch()
        with pytest.raises(ConfigError, match="both a pipeline and a folder"):
            pipeline_files(tmp_path / "l1")

    def test_what_is_not_there_is_told_as_ever(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="can't read the file"):
            load_lines([tmp_path / "nowhere.yaml"])
