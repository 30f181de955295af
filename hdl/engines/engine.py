"""What every engine looks like from outside: the same word in, the same lanes out. See ``docs/adding-an-engine.md``."""

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ..parts.isa import field_shape

__all__ = ["ACCUMULATOR_BITS", "ChainedStep", "Step", "engine_members", "result_layout"]

ACCUMULATOR_BITS = 32


class Step(data.Struct):
    """One step of a window, beside its activation word.

    ``clear``: a window begins here. ``fire``: its result leaves after this step.
    """

    valid: unsigned(1)
    clear: unsigned(1)
    fire: unsigned(1)


class ChainedStep(data.Struct):
    """A step of the multiplier array.

    ``chain``: products add up across columns, lane by lane, instead of across lanes; every column sees the word of
    ``rows`` steps before the one that the column before it sees.
    """

    valid: unsigned(1)
    clear: unsigned(1)
    fire: unsigned(1)
    chain: unsigned(1)
    rows: field_shape(isa.COMPUTE, "rows")


def result_layout(config: Config) -> data.StructLayout:
    """The accumulators of a window that has ended; lanes that an engine does not use are undefined."""
    return data.StructLayout(
        {"valid": unsigned(1), "lanes": data.ArrayLayout(signed(ACCUMULATOR_BITS), config.array.lanes)}
    )


def engine_members(config: Config, step: type[data.Struct] = Step) -> dict[str, wiring.Member]:
    """Members of an engine, which has an attribute ``latency``: cycles from a word to the result that it completes.

    ``step`` and ``word`` belong together and come in any cycle; nothing can be held back. ``weights[j]``, where an
    engine has that member beside these, is the word of weights for column j, j cycles after the activation word that it
    belongs to.
    """
    return {
        "step": In(step),
        "word": In(8 * config.array.lanes),
        "result": Out(result_layout(config)),
    }
