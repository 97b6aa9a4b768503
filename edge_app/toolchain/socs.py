"""The chips that plans are compiled for.

Numbers are those of `Qnn_SocModel_t`, the compiler's own (not Android's soc_id). Sources, read in public code:

- [E] ExecuTorch, backends/qualcomm/serialization/qc_schema.py (Qualcomm Innovation Center): number, arch, VTCM.
- [L] LiteRT, litert/vendors/qualcomm/core/schema/soc_table.cc (Qualcomm Innovation Center): arch, VTCM.

QCS8550 is the IoT part of SM8550, QCS6490 that of QCM6490: same silicon, same number. Float: from v73 on the HTP
computes in fp16; on v68 the same graph with float inside was measured to lose accuracy (cosine 0.9947 against 0.9998).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from edge_app.errors import ConfigError
from edge_app.runtime.qnn import HtpTarget


@dataclass(frozen=True, slots=True)
class Soc:
    """A chip, as the HTP compiler knows it."""

    name: str
    soc_model: int
    htp_arch: int
    vtcm_mb: int
    source: str
    marketing: str = ""

    @property
    def float_support(self) -> str:
        """`fp16`, or `poor` where the HTP has no real float path."""
        return "fp16" if self.htp_arch >= 69 else "poor"

    @property
    def target(self) -> HtpTarget:
        """The same for the runtime."""
        return HtpTarget(self.name, self.soc_model, self.htp_arch)


SOCS = {
    soc.name: soc
    for soc in (
        Soc("qcs6490", 93, 68, 2, "[E] as QCM6490", "Dragonwing QCS6490, RB3 Gen 2"),
        Soc("qcm6490", 93, 68, 2, "[E]", "Dragonwing QCM6490"),
        Soc("sa8295", 39, 68, 8, "[E] [L]", "Snapdragon Ride SA8295P"),
        Soc("sm8450", 36, 69, 8, "[E] [L]", "Snapdragon 8 Gen 1"),
        Soc("qcs8550", 43, 73, 8, "[E] [L] as SM8550", "Dragonwing QCS8550"),
        Soc("sm8550", 43, 73, 8, "[E] [L]", "Snapdragon 8 Gen 2"),
        Soc("sc8380xp", 60, 73, 8, "[L]", "Snapdragon X Elite"),
        Soc("qcs9075", 77, 73, 8, "[E] [L] as QCS9100", "Dragonwing IQ-9075"),
        Soc("qcs8275", 82, 75, 8, "[L] as QCS8300", "Dragonwing IQ-8275"),
        Soc("sm8650", 57, 75, 8, "[E] [L]", "Snapdragon 8 Gen 3"),
        Soc("sm8750", 69, 79, 8, "[E] [L]", "Snapdragon 8 Elite"),
        Soc("sm8850", 87, 81, 8, "[E] [L]", "Snapdragon 8 Elite Gen 5"),
    )
}

SHIPPED = ("qcs6490", "qcs8550", "sm8650", "sm8750", "sm8850")
"""The SoCs that shipped models have plans for: one of each HTP arch in use."""


def soc_named(name: str) -> Soc:
    """A SoC of the table.

    Raises:
        ConfigError: not in the table; onnxruntime-qnn itself would take any number without a word.
    """
    soc = SOCS.get(name.lower())
    if soc is None:
        near = difflib.get_close_matches(name.lower(), SOCS, n=1)
        raise ConfigError(
            f"unknown SoC {name!r}",
            wanted=f"one of {', '.join(SOCS)}",
            got=name,
            remedy=f"did you mean {near[0]}?" if near else "`edge_app model socs` lists them with their sources",
        )
    return soc


def socs_named(names: str) -> tuple[Soc, ...]:
    """SoCs of a comma-separated list, each once, in the order given."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ConfigError("no SoC is named", wanted=f"e.g. --soc {','.join(SHIPPED)}", got=repr(names))
    return tuple(dict.fromkeys(soc_named(name) for name in wanted))
