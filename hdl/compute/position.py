"""A step within a window, and the one after it."""

from functools import reduce
from operator import and_

from amaranth.hdl import Const, Value, unsigned
from amaranth.lib import data

from ...golden import isa
from ...golden.config import Config
from ...golden.engines import specification_of
from ..parts.isa import EngineCommand, field_shape

__all__ = ["Position", "begin", "follow"]


class Position(data.Struct):
    """A step within a window; ``takes_weight``: the next step has the next weight word."""

    entry: field_shape(isa.COMPUTE, "list")
    steps_left: field_shape(isa.COMPUTE, "steps")
    last: unsigned(1)
    takes_weight: unsigned(1)


def begin(position: data.View, command: data.View, skip: Value | int, steps: Value, config: Config) -> list:
    """Assign the first step of a window that leaves out ``skip`` and has ``steps``."""
    return [
        position.entry.eq(command.list + skip),
        position.steps_left.eq(steps - 1),
        position.last.eq(steps == 1),
        position.takes_weight.eq(_takes_weight(command, steps, config)),
    ]


def follow(position: data.View, command: data.View, config: Config) -> list:
    """Assign the step after ``position``."""
    return [
        position.entry.eq(position.entry + 1),
        position.steps_left.eq(position.steps_left - 1),
        position.last.eq(position.steps_left == 1),
        position.takes_weight.eq(_takes_weight(command, position.steps_left, config)),
    ]


def _takes_weight(command: data.View, steps: Value, config: Config) -> Value:
    """Whether the first of the last ``steps`` steps of a window takes a weight word, if its engine takes any."""
    conditions = [
        (command.engine != engine) | (steps <= EngineCommand(command, engine)[words])
        for engine in config.engines
        # As many as there are steps: all of them.
        if (words := specification_of(engine).issue.weight_words) not in (None, "steps")
    ]
    return reduce(and_, conditions) if conditions else Const(1)
