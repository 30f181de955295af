"""Rates of the line: a bit's time, in sixteenths of a clock cycle. Standard library only."""

from __future__ import annotations

#: Bits in a second after reset.
INITIAL_RATE = 115_200
#: At another rate, so many seconds without a good frame bring back the initial one.
RATE_TIMEOUT_S = 1
#: Parts of a cycle in which a bit's time is given: at 8 cycles a bit the rate is within 0.4 % of what is wanted.
PARTS = 16
#: A bit's time, in these parts: at least 8 cycles, which leaves the receiver its samples, and 16 bits.
LEAST_BIT_TIME = 8 * PARTS
MOST_BIT_TIME = (1 << 16) - 1


def bit_time(clock_hz: float, rate: float) -> int:
    """The time of a bit at ``rate`` bits a second.

    Returns
    -------
    int
        In sixteenths of a cycle of a clock of ``clock_hz``.

    Raises
    ------
    ValueError
        If it is out of range.
    """
    parts = round(PARTS * clock_hz / rate)
    if not LEAST_BIT_TIME <= parts <= MOST_BIT_TIME:
        least, most = clock_hz * PARTS / MOST_BIT_TIME, clock_hz * PARTS / LEAST_BIT_TIME
        raise ValueError(
            f"rate must be between {least:.0f} and {most:.0f} bits a second at a clock of {clock_hz:.0f} Hz, "
            f"not {rate:.0f}"
        )
    return parts


def rate_timeout_cycles(clock_hz: float) -> int:
    """Cycles without a good frame after which the initial rate is back."""
    return round(clock_hz * RATE_TIMEOUT_S)
