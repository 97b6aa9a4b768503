"""`edge_app journal`: what comes out is what was written, and what is damaged is named."""

from __future__ import annotations

import csv
import json
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from wire_samples import identity, sealed

from edge_app.cli import main
from edge_app.config.results import Journal as Section
from edge_app.results import journal_file as jf
from edge_app.results.journal import Journal
from edge_app.results.record import Record
from edge_app.verdict import Reason

REASONS = (Reason.OK, Reason.DEFECT, Reason.LATE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two runs, of 30 and of 12 results."""
    made = tmp_path / "results.db"
    for count in (30, 12):
        who = identity()
        journal = Journal(Section(path=made), who, lambda *_: None, lambda: None)
        journal.start()
        for seq in range(1, count + 1):
            part = "=cmd|'/c calc'!A1" if seq == 1 else f"Teil-{seq} ü"
            journal.put(Record(sealed(seq, REASONS[seq % 3], part_id=part), who, part, (), None))
        journal.close(5)
    return made


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["journal", *map(str, arguments)])
    return code, capsys.readouterr().out


def stats(capsys: pytest.CaptureFixture[str], file: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(run(capsys, "stats", file, "--json")[1])["runs"]
    return runs


def test_stats_counts_runs_and_reasons(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = stats(capsys, file)
    assert (first["last_seq"], second["last_seq"], first["ended"]) == (30, 12, "cleanly")
    assert first["verdicts"] == {"PASS": 10, "FAIL": 10, "UNKNOWN": 10}
    assert second["reasons"] == {"OK": 4, "DEFECT": 4, "LATE": 4}
    code, out = run(capsys, "stats", file)
    assert code == 0
    started = datetime.fromtimestamp(first["started_us"] / 1e6, UTC).astimezone()
    assert started.strftime("%Y-%m-%d") in out


def test_json_lines_are_the_messages(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "export", file)
    messages = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [m["seq"] for m in messages] == [*range(1, 31), *range(1, 13)]
    assert messages[1]["part_id"] == "Teil-2 ü"


def noted(file: Path) -> list[dict[str, Any]]:
    """Notes on results 3 (two of them) and 9 of the newest run; as an export has them."""
    with closing(jf.open_for_writing(file)) as connection:
        run = jf.read_runs(connection)[-1].number
        notes = [(3, 70, "a verdict came after the seal: DEFECT 1 short"), (9, 90, "late ü"), (3, 80, "=late")]
        jf.append(connection, run, [], [jf.Note(*note) for note in notes])
    return [{"t_us": t_us, "text": text} for _, t_us, text in notes]


def test_a_verdict_that_came_after_the_seal_is_exported_beside_its_result(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(capsys, "export", file)[1].splitlines()
    first, last, second = noted(file)
    after = run(capsys, "export", file)[1].splitlines()
    told = {number: json.loads(line) for number, line in enumerate(after) if line != before[number]}
    assert {number: message.pop("notes") for number, message in told.items()} == {32: [first, second], 38: [last]}
    assert told == {number: json.loads(before[number]) for number in told}, "the messages themselves as they were"
    target = file.with_suffix(".csv")
    capsys.readouterr()
    assert main(["journal", "export", str(file), "--out", str(target)]) == 0
    assert "42 results of 2 runs, 2 with notes" in capsys.readouterr().err
    notes = [row["notes"] for row in csv.DictReader(target.open(encoding="utf-8"))]
    assert [text for text in notes if text] == [f"{first['text']}; {second['text']}", "late ü"]


def test_a_journal_from_before_there_were_notes_is_exported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("DROP TABLE note; PRAGMA user_version = 1")
    code, out = run(capsys, "export", file)
    assert (code, len(out.splitlines())) == (0, 42)


def test_notes_that_are_damaged_cost_no_result(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noted(file)
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'note'").fetchone()
    with file.open("r+b") as stream:
        stream.seek(4096 * (page - 1))
        stream.write(b"\xff" * 4096)
    capsys.readouterr()
    code = main(["journal", "export", str(file)])
    printed = capsys.readouterr()
    assert (code, len(printed.out.splitlines())) == (1, 42)
    assert "notes left out" in printed.err


def test_one_run_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    epoch = stats(capsys, file)[1]["epoch"]
    _, out = run(capsys, "export", file, "--epoch", epoch)
    assert {json.loads(line)["epoch"] for line in out.splitlines()} == {epoch}
    assert run(capsys, "export", file, "--epoch", "nobody")[0] == 2


def test_csv_has_a_row_each_and_no_formulas(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = file.with_suffix(".csv")
    assert run(capsys, "export", file, "--out", target)[0] == 0
    rows = list(csv.DictReader(target.open(encoding="utf-8")))
    assert len(rows) == 42
    assert rows[0]["part_id"].startswith("'=cmd")
    assert (rows[0]["verdict"], rows[0]["worst_label"], rows[0]["worst_score"], rows[0]["detections"]) == (
        "FAIL", "short", "0.93", "1",
    )
    assert rows[1]["latency_us"] == "9000"


def test_parquet_keeps_types(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = file.with_suffix(".parquet")
    assert run(capsys, "export", file, "--out", target)[0] == 0
    rows = parquet.read_table(target).to_pylist()
    assert len(rows) == 42
    assert (rows[0]["seq"], rows[0]["simulated"], rows[0]["worst_score"]) == (1, True, 0.93)
    assert rows[1]["worst_label"] is None


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_place_that_can_not_be_written_is_told(
    file: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet")
    capsys.readouterr()
    for place in (file.parent / "nowhere" / "out", Path("/dev/full")):
        assert main(["journal", "export", str(file), "--format", kind, "--out", str(place)]) == 2
        assert f"--out {place}: can't write there" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_full_disk_leaves_no_half_export(file: Path, kind: str) -> None:
    """Nor does it cost the export of the day before. Half a table looks like a whole one."""
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # else reading needs a -shm, larger than the disk
    target = file.with_name(f"out.{kind}")
    target.write_text("of the day before")
    done = subprocess.run(
        [sys.executable, "-PBm", "edge_app", "journal", "export", file, "--out", target],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
    )  # fmt: skip
    assert (done.returncode, "can't write there" in done.stderr, "File too large" in done.stderr) == (2, True, True)
    assert target.read_text() == "of the day before"
    assert [path.name for path in file.parent.glob("out*")] == [target.name]


def test_verify_says_all_is_well(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "verify", file, "--json")
    assert (code, json.loads(out)) == (0, {"ok": True, "runs": 2, "results": 42, "found": 0, "problems": []})


@pytest.mark.parametrize(
    ("damage", "seq", "told"),
    [
        ("DELETE FROM result", 7, "missing, up to 7"),
        ("UPDATE result SET body = CAST(replace(body, 'FAIL', 'PASS') AS BLOB)", 4, "checksum"),
        ("UPDATE result SET verdict = 'PASS'", 4, "verdict is 'FAIL', the journal says 'PASS'"),
        ("UPDATE result SET body = x'00', crc = 3523407757", 4, "not a result"),
    ],
)
def test_verify_names_what_is_wrong(
    file: Path, capsys: pytest.CaptureFixture[str], damage: str, seq: int, told: str
) -> None:
    with sqlite3.connect(file) as connection:
        assert connection.execute(f"{damage} WHERE id & 1099511627775 = ?", (seq,)).rowcount == 2
    code, out = run(capsys, "verify", file, "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["found"]) == (1, False, 2)
    assert {p["seq"] for p in report["problems"]} == {seq}
    assert all(told in p["problem"] for p in report["problems"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DELETE FROM result WHERE id & 1099511627775 = 7", "seq 7 to 7: missing"),
        ("DELETE FROM run WHERE number = 1", "30 results of runs that the journal does not list"),
    ],
)
def test_an_export_that_lacks_results_is_not_told_to_be_whole(
    file: Path, capsys: pytest.CaptureFixture[str], change: str, told: str
) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(change)
    assert main(["journal", "export", str(file)]) == 1
    assert told in capsys.readouterr().err
    assert main(["journal", "verify", str(file)]) == 1


@pytest.mark.parametrize("change", ["software = CAST(X'ff' AS TEXT)", "started_us = 9e300", "epoch = X'00'"])
@pytest.mark.parametrize("action", ["stats", "verify", "export"])
def test_a_table_of_runs_that_is_damaged_gives_no_traceback(file: Path, change: str, action: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE run SET {change} WHERE number = 1")
    assert main(["journal", action, str(file)]) in (0, 1, 2)


def test_export_leaves_damaged_results_out_and_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE result SET body = 'text' WHERE id & 1099511627775 = 5")
    capsys.readouterr()
    code = main(["journal", "export", str(file)])
    printed = capsys.readouterr()
    assert (code, len(printed.out.splitlines())) == (1, 40)
    assert "2 damaged ones left out" in printed.err


def spoil(file: Path, how: str) -> None:
    """Damage that SQLite meets only as it reads on."""
    if how == "text":
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE result SET verdict = CAST(x'5041ff53' AS TEXT) WHERE id & 1099511627775 = 7")
        return
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'result'").fetchone()
        (last,) = connection.execute("PRAGMA page_count").fetchone()
    with file.open("r+b") as stream:
        stream.seek(4096 * ((page if how == "root page" else last) - 1))
        stream.write(b"\xff" * 4096)


@pytest.mark.parametrize("how", ["text", "a page", "root page"])
def test_a_file_that_is_damaged_within_is_told_not_a_traceback(
    file: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(file, how)
    for arguments in (["verify", str(file)], ["export", str(file)]):
        capsys.readouterr()
        code = main(["journal", *arguments])
        printed = capsys.readouterr()
        assert code in (1, 2)
        assert any(word in printed.out + printed.err for word in ("damaged", "malformed", "checksum", "verdict is"))
        if how == "text" and arguments[0] == "export":
            assert len(printed.out.splitlines()) == 40, "all others are saved"
    assert main(["journal", "stats", str(file)]) in (0, 2)


@pytest.mark.parametrize("own", ["results.db", "link.db"])
def test_an_export_is_never_written_over_the_journal(
    file: Path, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_bytes()
    (file.parent / "link.db").symlink_to(file)
    assert main(["journal", "export", str(file), "--format", "csv", "--out", str(file.parent / own)]) == 2
    assert "this is the journal itself" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_verify_sees_one_moment_of_a_journal_whose_oldest_results_go_meanwhile(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_runs = jf.read_runs

    def then_delete(connection: sqlite3.Connection) -> list[jf.Run]:
        runs = read_runs(connection)
        with closing(jf.open_for_writing(file)) as node:
            assert jf.delete_oldest(node, now_us=0, keep_us=0, keep_bytes=0) == 42
        return runs

    monkeypatch.setattr(jf, "read_runs", then_delete)
    assert main(["journal", "verify", str(file)]) == 0
    assert "42 results of 2 runs: no problems" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"no journal", b""])
def test_what_is_no_journal_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "x.db"
    if content is not None:
        file.write_bytes(content)
    assert run(capsys, "stats", file)[0] == 2
