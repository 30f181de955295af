"""What a queue would be stuck with, if it were stuck: for the watchdog's report."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..parts.isa import INDEX_BITS

__all__ = ["Standing"]


class Standing(data.Struct):
    """The oldest command that is not completed, and the next one to begin."""

    # The unit has not completed command ``oldest``.
    in_flight: unsigned(1)
    unit: unsigned(8)
    oldest: unsigned(INDEX_BITS)
    # Command ``index`` has not arrived, or waits for its turn.
    missing: unsigned(1)
    waiting: unsigned(1)
    index: unsigned(INDEX_BITS)
