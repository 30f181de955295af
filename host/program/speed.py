"""What cycles are in time, at a clock."""

from __future__ import annotations

from dataclasses import dataclass

from ...golden.config import Config
from ...golden.presets import PRESETS, ROUTED_MHZ

#: A clock in MHz; below and above there is no FPGA.
_LEAST, _MOST = 1.0, 2000.0


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an accelerator is.

    Attributes
    ----------
    mhz : float
        Its clock.

    Raises
    ------
    ValueError
        If that is no clock of an FPGA.
    """

    mhz: float

    def __post_init__(self) -> None:
        if not _LEAST <= self.mhz <= _MOST:
            raise ValueError(f"mhz must be between {_LEAST:g} and {_MOST:g}, the clock in MHz, not {self.mhz:g}")

    @classmethod
    def of(cls, config: Config, mhz: float | None = None) -> Speed | None:
        """At a given clock, or at that at which a configuration has been routed; None if it has not."""
        if mhz is None:
            mhz = next((ROUTED_MHZ.get(name) for name, known in PRESETS.items() if known == config), None)
        return None if mhz is None else cls(mhz)

    def milliseconds(self, cycles: int) -> float:
        """The time of so many cycles."""
        return cycles / self.mhz / 1000

    def per_second(self, cycles: int, samples: int) -> float:
        """Samples a second, if ``samples`` take so many cycles, and others follow at once."""
        return samples * self.mhz * 1e6 / cycles

    def texts(self, cycles: int, samples: int) -> tuple[str, str]:
        """The time, and at which clock and rate, for people."""
        what = "inferences" if samples == 1 else "samples"
        rate = self.per_second(cycles, samples)
        digits = 0 if rate >= 100 else 1
        return f"{self.milliseconds(cycles):.4g} ms", f"at {self.mhz:g} MHz, {rate:,.{digits}f} {what} a second"

    def text(self, cycles: int, samples: int) -> str:
        """The same as a phrase."""
        return " ".join(self.texts(cycles, samples))

    def values(self, cycles: int, samples: int) -> dict[str, float]:
        """Both for scripts."""
        return {
            "mhz": self.mhz,
            "milliseconds": round(self.milliseconds(cycles), 6),
            "samples_per_second": round(self.per_second(cycles, samples), 3),
        }
