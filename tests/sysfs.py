"""Recorded sysfs trees for tests: written to a folder, changed while they are read."""

from __future__ import annotations

from pathlib import Path

QCS6490 = {
    # zone types and trip points as the mainline kernel has them on a QCS6490 board (nspss has no cooling device)
    "nspss0-thermal": (41_200, (("hot", 95_000), ("critical", 110_000))),
    "nspss1-thermal": (40_900, (("hot", 95_000), ("critical", 110_000))),
    "cpu0-thermal": (43_100, (("passive", 90_000), ("passive", 95_000), ("critical", 110_000))),
    "cpu4-thermal": (44_000, (("passive", 90_000), ("passive", 95_000), ("critical", 110_000))),
    "gpuss0-thermal": (40_100, (("passive", 95_000), ("critical", 110_000))),
    "msm-skin-thermal": (36_500, (("passive", 75_000),)),
}


class SysfsTree:
    """A tree with class/thermal below `root`."""

    def __init__(self, root: Path, zones: dict[str, tuple[int, tuple[tuple[str, int], ...]]] | None = None) -> None:
        self.root = root
        self.folders: dict[str, Path] = {}
        for number, (kind, (temp_mc, trips)) in enumerate((QCS6490 if zones is None else zones).items()):
            folder = root / "class" / "thermal" / f"thermal_zone{number}"
            folder.mkdir(parents=True)
            self.folders[kind] = folder
            self.write(folder / "type", kind)
            self.write(folder / "temp", str(temp_mc))
            for index, (trip, at_mc) in enumerate(trips):
                self.write(folder / f"trip_point_{index}_type", trip)
                self.write(folder / f"trip_point_{index}_temp", str(at_mc))

    @staticmethod
    def write(file: Path, text: str) -> None:
        """As the kernel shows a value: one line. Replaced as a whole, so that a reader never sees half of it."""
        beside = file.with_name(f".{file.name}.new")
        beside.write_text(f"{text}\n", encoding="ascii")
        beside.replace(file)

    def set_c(self, kind: str, temp_c: float) -> None:
        """A zone's temperature."""
        self.write(self.folders[kind] / "temp", str(round(temp_c * 1000)))
