"""The speed of a program at a clock, and the dimension that is divided among cores."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.presets import PRESETS, ROUTED_MHZ
from ...golden.program.program import Program

#: The least and the greatest clock of an FPGA, in MHz.
_LEAST, _MOST = 1.0, 2000.0


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of an accelerator.

    Attributes
    ----------
    mhz : float
        Its clock.

    Raises
    ------
    ValueError
        If no FPGA has such a clock.
    """

    mhz: float

    def __post_init__(self) -> None:
        if not _LEAST <= self.mhz <= _MOST:
            raise ValueError(f"mhz must be between {_LEAST:g} and {_MOST:g}, the clock in MHz, not {self.mhz:g}")

    @classmethod
    def of(cls, config: Config, mhz: float | None = None) -> Speed | None:
        """Return the speed at a given clock, or at the routed clock of a configuration; None if there is neither."""
        if mhz is None:
            mhz = next((ROUTED_MHZ.get(name) for name, known in PRESETS.items() if known == config), None)
        return None if mhz is None else cls(mhz)

    def milliseconds(self, cycles: int) -> float:
        """Return the time of so many cycles."""
        return cycles / self.mhz / 1000

    def per_second(self, cycles: int, samples: int) -> float:
        """Return the samples a second, if ``samples`` take so many cycles, and others follow at once."""
        return samples * self.mhz * 1e6 / cycles

    def texts(self, cycles: int, samples: int) -> tuple[str, str]:
        """Return the time, and its clock and rate, for people."""
        what = "inferences" if samples == 1 else "samples"
        rate = self.per_second(cycles, samples)
        digits = 0 if rate >= 100 else 1
        return f"{self.milliseconds(cycles):.4g} ms", f"at {self.mhz:g} MHz, {rate:,.{digits}f} {what} a second"

    def text(self, cycles: int, samples: int) -> str:
        """Return the same as a phrase."""
        return " ".join(self.texts(cycles, samples))

    def values(self, cycles: int, samples: int) -> dict[str, float]:
        """Return clock, time and rate for scripts."""
        return {
            "mhz": self.mhz,
            "milliseconds": round(self.milliseconds(cycles), 6),
            "samples_per_second": round(self.per_second(cycles, samples), 3),
        }


class SpreadBy(enum.StrEnum):
    """The dimension of which each core has a part."""

    #: Every core computes the whole network, for samples of its own.
    SAMPLE = "sample"
    #: All cores compute one sample, each some part of every layer.
    LAYER = "layer"


def spread_of(program: Program) -> SpreadBy:
    """Return how a program for several cores is divided."""
    return SpreadBy.SAMPLE if program.shares > 1 else SpreadBy.LAYER
