"""Exports, verifies or counts the journal of results. A node may go on writing meanwhile.

  edge_app journal stats var/results.db                          runs, results, verdicts
  edge_app journal verify pipelines/defect.yaml                  every result: present, whole, consistent
  edge_app journal export var/results.db --format csv --out results.csv
  edge_app journal export var/results.db --epoch 3f9a... --format jsonl | grep FAIL

FILE is a journal, or a pipeline that names one (results.journal.path).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from edge_app.commands.report import add_json_argument, people, print_json, print_table
from edge_app.config.load import load_pipeline
from edge_app.durable import whole
from edge_app.errors import ConfigError, ExitCode
from edge_app.results import journal_file as jf
from edge_app.results.journal_check import Problem, check_run, wrong_with

COLUMNS = (
    "node", "epoch", "seq", "trigger_id", "part_id", "frame_id", "verdict", "reason", "detail", "t_capture_us",
    "t_done_us", "deadline_us", "latency_us", "recipe", "recipe_rev", "model", "plan", "power_mode", "label",
    "detections", "worst_label", "worst_score", "simulated", "degraded", "software", "notes",
)  # fmt: skip
"""Of CSV and Parquet: one row a result. JSON Lines has the messages whole, and `notes` where there are any."""
EXPORT = "export results as CSV, JSON Lines or Parquet"
VERIFY = "check every result; exit code 1 if any is missing or damaged"
STATS = "count runs, results, verdicts and reasons"
FORMATS = ("csv", "jsonl", "parquet")
BATCH_ROWS = 10_000
MAX_PROBLEMS = 100
NO_MORE = (1 << jf.SEQ_BITS, list[jf.Note]())
"""Stands behind the last result that has notes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `edge_app journal`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="export|verify|stats")
    export = actions.add_parser("export", help=EXPORT, description=EXPORT)
    export.add_argument("--format", choices=FORMATS, help="default: by the ending of --out, else jsonl")
    export.add_argument("--out", metavar="FILE", type=Path, help="default: stdout (not for parquet)")
    verify = actions.add_parser("verify", help=VERIFY, description=VERIFY)
    stats = actions.add_parser("stats", help=STATS, description=STATS)
    for action in (export, verify, stats):
        action.add_argument("file", metavar="FILE", type=Path, help="a journal, or a pipeline that names one")
        action.add_argument("--epoch", metavar="E", help="only this run")
    for action in (verify, stats):
        add_json_argument(action)


def run(args: argparse.Namespace) -> int:
    """One of the three."""
    actions: dict[str, Callable[[argparse.Namespace, sqlite3.Connection, list[jf.Run]], ExitCode]] = {
        "export": export,
        "verify": verify,
        "stats": stats,
    }
    file = journal_of(args.file)
    try:
        with contextlib.closing(jf.open_for_reading(file)) as connection:
            connection.execute("BEGIN")  # one view of it, whatever a node writes or deletes meanwhile
            runs = jf.read_runs(connection)
            if args.epoch is not None:
                runs = [r for r in runs if r.epoch == args.epoch]
                if not runs:
                    raise ConfigError("no run of that name", where=str(file), got=ascii(args.epoch),
                                      remedy="see `edge_app journal stats`")
            return int(actions[args.action](args, connection, runs))
    except (sqlite3.Error, UnicodeError, TypeError, ValueError, OverflowError) as error:  # as damaged bytes are read
        raise ConfigError(
            "the journal can't be read on", where=str(file), got=f"{type(error).__name__}: {error}",
            remedy="if the file is damaged: `sqlite3 FILE .recover` saves what is left of it",
        ) from error


def journal_of(file: Path) -> Path:
    """The journal itself, or the one that a pipeline names."""
    if file.suffix not in (".yaml", ".yml"):
        return file
    path = load_pipeline(file).results.journal.path
    if path is None:
        raise ConfigError("this pipeline keeps no journal", where=f"{file}: results.journal.path", wanted="a file")
    return path


# -- export -----------------------------------------------------------------------------------------------------------


def export(args: argparse.Namespace, connection: sqlite3.Connection, runs: list[jf.Run]) -> ExitCode:
    """`edge_app journal export`."""
    kind = args.format or (args.out.suffix.removeprefix(".") if args.out is not None else "jsonl")
    if kind not in FORMATS:
        raise ConfigError("can't tell the format", where=f"--out {args.out}", wanted="--format csv, jsonl or parquet")
    refuse_journal_as_target(args)
    whole, strays = file_check(connection), stray_results(connection) if args.epoch is None else 0
    results = Readable(connection, runs)
    try:
        if kind == "parquet":
            write_parquet(args.out, results)
        else:
            writer = write_csv if kind == "csv" else write_jsonl
            with opened(args.out) as stream:
                writer(stream, results)
    except BrokenPipeError:
        raise
    except OSError as error:  # no such folder, a full disk
        where = f"--out {args.out}" if args.out is not None else "stdout"
        raise ConfigError("can't write there", where=where, got=error.strerror or str(error)) from error
    people().print(f"{results.count} results of {len(runs)} runs, {results.noted} with notes;"
                   f" {len(results.damaged)} damaged ones left out")  # fmt: skip
    for place in results.damaged[:MAX_PROBLEMS]:
        people().print(f"  damaged: {place}")
    for place in results.unread:
        people().print(f"  notes left out: {place}")
    if whole != "ok":
        people().print(f"  the file is damaged, and more may be missing: {whole}")
    if strays:
        people().print(f"  left out: {strays} results of runs that the journal does not list")
    return ExitCode.CHECK_FAILED if results.damaged or results.unread or whole != "ok" or strays else ExitCode.OK


def stray_results(connection: sqlite3.Connection) -> int:
    """Results whose run is not in the table of runs: a damaged one."""
    outside = f"SELECT count(*) FROM result WHERE id >> {jf.SEQ_BITS} NOT IN (SELECT number FROM run)"
    return int(connection.execute(outside).fetchone()[0])


def refuse_journal_as_target(args: argparse.Namespace) -> None:
    """An export must not be written over the journal itself, or its -wal.

    Raises:
        ConfigError: it would be.
    """
    if args.out is None or not args.out.exists():
        return
    file = journal_of(args.file)
    if any(own.exists() and args.out.samefile(own) for own in (file, Path(f"{file}-wal"), Path(f"{file}-shm"))):
        raise ConfigError("this is the journal itself", where=f"--out {args.out}", wanted="another file")


class Readable:
    """Lines and messages of all results that can be read; the others are named in `damaged`.

    A message is as it was published. Remarks that were made later, e.g. a verdict that came after the seal, are its
    `notes`, which stand nowhere on the wire.
    """

    def __init__(self, connection: sqlite3.Connection, runs: list[jf.Run]) -> None:
        self._connection, self._runs = connection, runs
        self.count = 0
        self.noted = 0
        self.damaged: list[str] = []
        self.unread: list[str] = []
        """Notes that can't be read; their results are there."""

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for each in self._runs:
            reached = 0
            all_notes = self._notes(each)
            noted_seq, notes = next(all_notes, NO_MORE)
            try:
                for row, crc in jf.read_all(self._connection, each.number):
                    expected = max(reached + 1, each.oldest_seq or 1)
                    if row.seq > expected:
                        self.damaged.append(f"{each.epoch} seq {expected} to {row.seq - 1}: missing")
                    reached = row.seq
                    if next(wrong_with(each, row, crc), None) is not None:
                        self.damaged.append(f"{each.epoch} seq {row.seq}")
                        continue
                    while noted_seq < row.seq:
                        noted_seq, notes = next(all_notes, NO_MORE)
                    self.count += 1
                    yield self._with(row.body, notes if noted_seq == row.seq else [])
            except sqlite3.Error as error:
                self.damaged.append(f"{each.epoch} all after seq {reached}: {error}")

    def _notes(self, run: jf.Run) -> Iterator[tuple[int, list[jf.Note]]]:
        try:
            yield from jf.read_notes(self._connection, run.number)
        except sqlite3.Error as error:
            self.unread.append(f"{run.epoch}: {error}")

    def _with(self, body: bytes, notes: list[jf.Note]) -> tuple[str, dict[str, Any]]:
        message = json.loads(body)
        if not notes:
            return body.decode("ascii"), message
        self.noted += 1
        message["notes"] = [{"t_us": note.t_us, "text": note.text} for note in notes]
        return json.dumps(message, separators=(",", ":")), message


@contextlib.contextmanager
def opened(file: Path | None) -> Iterator[TextIO]:
    """The file for writing, or stdout."""
    if file is None:
        yield sys.stdout
        return
    with whole(file) as place, place.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def write_jsonl(stream: TextIO, results: Readable) -> None:
    """The messages, one a line."""
    for line, _ in results:
        stream.write(line + "\n")


def write_csv(stream: TextIO, results: Readable) -> None:
    """COLUMNS, one row a result."""
    writer = csv.DictWriter(stream, COLUMNS)
    writer.writeheader()
    for _, message in results:
        writer.writerow({name: spreadsheet_safe(value) for name, value in flat(message).items()})


def spreadsheet_safe(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula is quoted: part ids come from outside."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write_parquet(file: Path | None, results: Readable) -> None:
    """COLUMNS as Parquet, by pyarrow.

    Raises:
        ConfigError: pyarrow is not installed, or there is no --out.
    """
    try:
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow", where="--format parquet", remedy="pip install pyarrow") from error
    if file is None:
        raise ConfigError("Parquet needs a file", where="--format parquet", wanted="--out FILE")
    text, number = pa.string(), pa.int64()
    special = {"worst_score": pa.float64(), "simulated": pa.bool_()}
    numbers = {name for name in COLUMNS if name.endswith(("_us", "_id")) or name in ("seq", "detections")} - {"part_id"}
    schema = pa.schema([(name, special.get(name, number if name in numbers else text)) for name in COLUMNS])
    rows = (flat(message) for _, message in results)
    with whole(file) as place, pq.ParquetWriter(place, schema) as writer:
        while batch := list(islice(rows, BATCH_ROWS)):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def flat(message: dict[str, Any]) -> dict[str, Any]:
    """One result as a row of COLUMNS; `worst` is the detection with the highest score."""
    found = message.get("detections") or []
    worst = max(found, key=lambda d: d["score"] or 0, default=None)
    row: dict[str, Any] = {name: message.get(name) for name in COLUMNS}
    row.update(
        latency_us=message["t_done_us"] - message["t_capture_us"],
        recipe=message["recipe"]["name"],
        recipe_rev=message["recipe"]["rev"],
        model=message["model"]["name"],
        plan=message["sched"]["plan"],
        power_mode=message["sched"]["power_mode"],
        detections=len(found),
        worst_label=None if worst is None else worst["label"],
        worst_score=None if worst is None else worst["score"],
        degraded=" ".join(message["degraded"]),
        notes="; ".join(note["text"] for note in message.get("notes", [])) or None,
    )
    return row


# -- verify and stats -------------------------------------------------------------------------------------------------


def verify(args: argparse.Namespace, connection: sqlite3.Connection, runs: list[jf.Run]) -> ExitCode:
    """`edge_app journal verify`: exit code 1 if anything is wrong."""
    whole = file_check(connection)
    problems = [] if whole == "ok" else [Problem("", 0, f"the file: {whole}")]
    if args.epoch is None and (strays := stray_results(connection)):
        problems.append(Problem("", 0, f"{strays} results of runs that the journal does not list"))
    results = 0
    for each in runs:
        count, found = check_run(connection, each)
        results += count
        problems += found
    if args.json:
        listed = [{"epoch": p.epoch, "seq": p.seq, "problem": p.what} for p in problems[:MAX_PROBLEMS]]
        counts = {"runs": len(runs), "results": results, "found": len(problems)}
        print_json({"ok": not problems, **counts, "problems": listed})
    else:
        for problem in problems[:MAX_PROBLEMS]:
            print(f"{problem.epoch} seq {problem.seq}: {problem.what}")
        print(f"{results} results of {len(runs)} runs: {len(problems) or 'no'} problems")
    return ExitCode.CHECK_FAILED if problems else ExitCode.OK


def file_check(connection: sqlite3.Connection) -> str:
    """`ok`, or what SQLite finds wrong with the file."""
    try:
        return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)


def stats(args: argparse.Namespace, connection: sqlite3.Connection, runs: list[jf.Run]) -> ExitCode:
    """`edge_app journal stats`."""
    told = [run_stats(connection, each) for each in runs]
    if args.json:
        print_json({"bytes": jf.size_bytes(connection), "runs": told})
        return ExitCode.OK
    columns = ("epoch", "node", "began", "ended", "seq", "PASS", "FAIL", "UNKNOWN")
    rows = [
        [t["epoch"], t["node"], local_time(t["started_us"]),
         "cleanly" if t["ended"] == "cleanly" else "not (yet)",  # the words of --json are too wide here
         seqs(t), *(t["verdicts"].get(verdict, 0) for verdict in columns[5:])]
        for t in told
    ]  # fmt: skip
    print_table(f"journal, {jf.size_bytes(connection)} bytes", columns, rows)
    reasons: Counter[str] = sum((Counter(t["reasons"]) for t in told), Counter())
    print_table("reasons", ("reason", "results"), reasons.most_common())
    return ExitCode.OK


def seqs(told: Mapping[str, Any]) -> str:
    """Of the results that are held."""
    return "none" if told["last_seq"] is None else f"{told['oldest_seq']}..{told['last_seq']}"


def local_time(t_us: int) -> str:
    """As the log and `edge_app watch` have it."""
    return datetime.fromtimestamp(t_us / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def run_stats(connection: sqlite3.Connection, run: jf.Run) -> dict[str, Any]:
    """One run in numbers."""
    span = (jf.result_id(run.number, 0), jf.result_id(run.number, jf.SEQ_MASK))
    rows = connection.execute(
        "SELECT verdict, reason, count(*) FROM result WHERE id BETWEEN ? AND ? GROUP BY verdict, reason", span
    ).fetchall()
    verdicts: Counter[str] = Counter()
    for verdict, _, count in rows:
        verdicts[verdict] += count
    return {
        "epoch": run.epoch, "node": run.node, "software": run.software, "started_us": run.started_us,
        "ended": "cleanly" if run.ended_us is not None else "cut off, or running", "oldest_seq": run.oldest_seq,
        "last_seq": run.last_seq, "verdicts": dict(verdicts), "reasons": {reason: count for _, reason, count in rows},
    }  # fmt: skip
