"""The note that keeps the NPU out of the next start."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from edge_app.config.pipeline import Pipeline
from edge_app.errors import ConfigError
from edge_app.health import Grade, npu_out_findings
from edge_app.npu_out import NpuOut, leave_note, note_file, remove_note, standing_note, this_boot

NOTE = NpuOut("every slot is held by a run that never returned", "htp", 1_764_460_800_000_000, this_boot())


def test_a_note_is_read_as_it_was_left(tmp_path: Path) -> None:
    file = tmp_path / "var" / "defect.npu-out.json"
    assert standing_note(file) is None
    leave_note(file, NOTE)
    assert standing_note(file) == NOTE
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert NOTE.text == (
        "the NPU is kept out: 2025-11-30 00:00:00 UTC, plan htp: every slot is held by a run that never returned"
    )
    assert remove_note(file)
    assert (standing_note(file), remove_note(file)) == (None, False)


def test_a_board_that_was_started_again_is_no_longer_kept_from_its_npu(tmp_path: Path) -> None:
    file = tmp_path / "defect.npu-out.json"
    leave_note(file, replace(NOTE, boot_id="another"))
    assert standing_note(file) is None
    assert not file.exists()


def garbled(t_us: str) -> str:
    return f'{{"reason": "x", "plan": "htp", "t_us": {t_us}, "boot_id": "{this_boot()}"}}'


NO_TIMES = ('"?"', "null", "NaN", "Infinity", "1e30", "-1e18", "9" * 5000)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, *map(garbled, NO_TIMES)], ids=range(12))
def test_a_note_that_can_not_be_read_holds(tmp_path: Path, text: str) -> None:
    file = tmp_path / "defect.npu-out.json"
    file.write_text(text)
    note = standing_note(file)
    assert note is not None
    assert "can't be read" in note.text
    assert remove_note(file)
    assert standing_note(file) is None


def test_a_note_that_can_not_be_written_is_told_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    with caplog.at_level(logging.ERROR):
        leave_note(tmp_path / "file" / "defect.npu-out.json", NOTE)
    assert "can't be written" in caplog.text


def test_a_note_that_can_not_be_removed_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "defect.npu-out.json"
    file.mkdir()
    with pytest.raises(ConfigError, match="can't be removed"):
        remove_note(file)


def test_it_lies_beside_the_journal_or_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = {"camera": {"type": "synthetic"}, "model": {"path": "m"}, "limits": {"pacing": "offline"}}
    without = Pipeline.model_validate(section, strict=False)
    assert note_file(without, "defect") == tmp_path / "defect.npu-out.json"
    with_journal = section | {"results": {"journal": {"path": "/var/lib/line/results.db"}}}
    assert note_file(Pipeline.model_validate(with_journal, strict=False), "defect") == Path(
        "/var/lib/line/defect.npu-out.json"
    )


def test_doctor_tells_it_and_what_to_do() -> None:
    file = Path("defect.npu-out.json")
    (found,) = npu_out_findings(NOTE, file, False)
    assert (found.grade, "--allow-npu" in (found.remedy or "")) == (Grade.FAIL, True)
    assert npu_out_findings(None, file, False) == []
    (nothing,) = npu_out_findings(None, file, False, asked=True)
    assert (nothing.grade, str(file) in nothing.text) == (Grade.WARN, True), "another folder than the service's?"
    (done,) = npu_out_findings(None, file, True)
    assert done.grade is Grade.OK
