"""The NPU stays out over a restart, once a run on it has never returned.

Such a run keeps the NPU out for its process. When such runs have taken all slots, the process ends with exit code 5
and its supervisor starts it again; were the NPU tried then, the line would soon stand again. So a process in which one
hung, however it ends, leaves a note (beside the journal, else in the working directory, which under systemd is the
service's state directory), and the next start of the same pipeline runs on `cpu`, with the alarm NPU_LOST, whatever
`runtime.fallback` says: a dead NPU never stops the line.

The note holds until the board is started again, which resets the DSP, or until an operator has made sure of the NPU and
takes it away: `edge_app doctor --pipeline FILE --allow-npu`. No success of the cpu plan takes it away, for that says
nothing about the NPU. A note that can't be read holds too: unknown is never well.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge_app.config.pipeline import Pipeline
from edge_app.durable import replace_durably
from edge_app.errors import ConfigError

log = logging.getLogger(__name__)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class NpuOut:
    """Why the NPU stays out."""

    reason: str
    plan: str
    """That hung."""
    t_us: int
    """When the process ended, UTC; 0: not known."""
    boot_id: str
    """Of the kernel that it ran under; another one: the board was started again since."""

    @property
    def text(self) -> str:
        """For people."""
        when = f"{datetime.fromtimestamp(self.t_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.t_us else "once"
        return f"the NPU is kept out: {when}, plan {self.plan}: {self.reason}"


def note_file(pipeline: Pipeline, name: str) -> Path:
    """Where the note of a pipeline lies; `name` is the YAML's."""
    journal = pipeline.results.journal.path
    return (Path.cwd() if journal is None else journal.parent) / f"{name}.npu-out.json"


def this_boot() -> str:
    """Names the time since the kernel was started."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def leave_note(file: Path, note: NpuOut) -> None:
    """Writes the note, whole or not at all. What can't be written is an error in the log: the process ends anyway."""
    try:
        replace_durably(file, json.dumps(asdict(note)))
    except OSError as error:
        log.error("the next start will try the NPU again: %s can't be written: %s", file, error)


def standing_note(file: Path) -> NpuOut | None:
    """The note that holds now; None: there is none. One from before the board's last start is taken away."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        note = NpuOut(str(fields["reason"]), str(fields["plan"]), int(fields["t_us"]), str(fields["boot_id"]))
        datetime.fromtimestamp(note.t_us / 1e6, UTC)  # raises at a time that no calendar has
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return NpuOut(f"{file} can't be read: {error}", "unknown", 0, this_boot())
    if note.boot_id == this_boot():
        return note
    log.info("the board was started again: %s holds no longer", file)
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        log.warning("it can't be removed: %s", error)
    return None


def remove_note(file: Path) -> bool:
    """Lets the next start try the NPU; False if there was no note. Raises ConfigError where that is not allowed."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            "the note that keeps the NPU out can't be removed",
            where=str(file),
            got=str(error),
            remedy="do it as the service's user, or as root",
        ) from error
    return True
