"""What an engine is: a specification, which golden machine, hardware, prediction, manual and tests ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..memories import LocalMemory
from .engine import Engine
from .finish import REQUANTISE, Finish
from .issue import ANY_ISSUE, Issue

Bool = npt.NDArray[np.bool_]
UInt8 = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]
Int8 = npt.NDArray[np.int8]
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

Command = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TileWindows:
    """The windows of one tile, as the twin of an engine gets them.

    Attributes
    ----------
    command : mapping
        Fields of COMPUTE and the engine's own, legal ones.
    config : Config
    words : int8[..., inner, steps, lanes]
        Activation words of each window, those included that it leaves out because the one before it has read them.
    weights : int8[weight_words, columns, lanes]
        Those of the tile; without a word if the engine takes none.
    memories : mapping of LocalMemory to uint8[size_bytes]
        All of them, for tables of the engine's own and for the step list.
    rng : numpy.random.Generator
        Gives the bytes that are whatever the hardware makes of them.
    """

    command: Command
    config: Config
    words: Int8
    weights: Int8
    memories: Mapping[LocalMemory, UInt8]
    rng: np.random.Generator


@dataclass(frozen=True, slots=True)
class RandomWindow:
    """A window for tests.

    Attributes
    ----------
    fields : dict of str to int
        ``steps``, the engine's own fields, and every other field that it does not leave open.
    sum_start : int
        The step with the flag ``clear``.
    is_one_column : bool
        The sum may begin with words that only the first column sees: the others must have null weights.
    """

    fields: dict[str, int]
    sum_start: int = 0
    is_one_column: bool = False


def any_steps(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    """The random windows of an engine that takes any number of steps: often one or two."""
    return RandomWindow({"steps": int(rng.choice(np.array([1, 2, rng.integers(1, size)])))})


def _no_columns(config: Config) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class EngineSpecification:
    """Everything about an engine that is not its hardware. See ``docs/adding-an-engine.md``.

    Attributes
    ----------
    engine : Engine
        What the instruction set and the configuration know of it.
    notes : str
        What a command means for it, for the manual.
    results : str
        Which number of the configuration limits the results of a window, as ``"array.lanes"``, or of the engine's own,
        as ``"width"``.
    totals : callable
        The twin: :class:`TileWindows` to totals int32[..., inner, lanes] or int64[...], before they are finished; of an
        engine with further results int32[..., inner, results, lanes].
    latency : callable
        Configuration and command to the cycles from the last word of a window to its result, which has that of the
        array's lanes at most; from the first word to the first results, if the engine is one of bursts.
    random_window : callable
        Configuration, ``numpy.random.Generator`` and a size, at least 2, to a :class:`RandomWindow` that takes at most
        so many weight words, or as few as it can, and about so many steps at most.
    conditions : callable or None
        What its commands must meet beside the conditions of all: command and configuration to a list of bits, in
        expressions that mean the same for NumPy integers and for Amaranth values: ``&``, ``|``, ``~`` (of bits),
        ``any()``, comparisons and ``+``. Fields are taken as ``command["steps"]``.
    issue : Issue
        How its windows are issued.
    finishes : tuple of Finish
        What may make codes of its totals, in the order in which commands choose; the last one serves all others.
    is_binary : bool
        Every bit of a word is a binary value. Configurations with such an engine can pack results, see
        :mod:`~lutterfly.golden.machine.packing`.
    borrowed_columns : callable
        Configuration to the columns of the array, the first ones, whose multipliers it uses: values of 16 bits by
        the weights of those columns.
    brings_weights : bool
        It gives those columns weights of its own, of ``DIFFERENCE_BITS`` bits, in place of theirs.
    random_scale : float or None
        The scale that tests give its results; None for any.
    """

    engine: Engine[Any]
    notes: str
    results: str
    totals: Callable[[TileWindows], npt.NDArray[np.signedinteger[Any]]]
    latency: Callable[[Config, Command], int]
    random_window: Callable[[Config, np.random.Generator, int], RandomWindow]
    conditions: Callable[[Any, Config], list[Any]] | None = None
    issue: Issue = ANY_ISSUE
    finishes: tuple[Finish, ...] = (REQUANTISE,)
    is_binary: bool = False
    borrowed_columns: Callable[[Config], int] = _no_columns
    brings_weights: bool = False
    random_scale: float | None = None

    def __post_init__(self) -> None:
        if self.issue.has_streams and self.conditions is None:
            raise ValueError("conditions must be given for an engine with streams, not None")
        if [finish.name for finish in self.finishes if finish.chosen is None] != [self.finishes[-1].name]:
            raise ValueError(f"finishes must end with one that is chosen by all others, not be {self.finishes}")

    @property
    def name(self) -> str:
        """In lower case, as it stands in the names of signals and files."""
        return self.engine.name.lower()

    def most_results(self, config: Config) -> int:
        """Results of a window at most: the limit of the fields ``lanes`` and ``last_lanes``."""
        limit: int = attrgetter(self.results)(config if "." in self.results else config.engines[self.engine])
        return limit

    def legal(self, command: Any, config: Config) -> Any:
        """The conditions that distinguish its commands, as one bit.

        ``command`` has the engine's own fields beside those of all: NumPy integers, or Amaranth's values.
        """
        conditions = [] if self.conditions is None else self.conditions(command, config)
        for finish, chosen in self.choices(command):
            if finish.is_whole:
                # It writes codes as they are; where it is not built, no command may choose it.
                after = command["packed"] | command["table_enable"]
                conditions.append(~(chosen & after) if finish.is_built(config) else ~chosen)
        return reduce(and_, conditions if self.issue.has_streams else [*conditions, leaves_nothing_out(command)])

    def is_legal(self, command: Command, config: Config) -> bool:
        """Whether a command of plain integers meets those conditions."""
        return bool(self.legal(as_numpy(command, self.engine), config))

    @property
    def has_conditions(self) -> bool:
        """Whether its commands must meet more than those of any engine."""
        return self.conditions is not None or any(finish.is_whole for finish in self.finishes)

    def choices(self, command: Any) -> list[tuple[Finish, Any]]:
        """Each finish but the last one, and whether a command chooses it, as one bit."""
        choices: list[tuple[Finish, Any]] = []
        for finish in self.finishes:
            if finish.chosen is not None:
                chosen = finish.chosen(command)
                for _, before in choices:
                    chosen &= ~before
                choices.append((finish, chosen))
        return choices

    def finish_of(self, command: Command) -> Finish:
        """What makes codes of the totals of a command of plain integers."""
        return next(
            finish for finish in self.finishes if finish.chosen is None or finish.chosen(as_numpy(command, self.engine))
        )


def as_numpy(command: Command, engine: Engine[Any]) -> dict[str, np.bool_ | np.int64]:
    """The fields of an engine's COMPUTE command of plain integers, bits as such: what conditions are asked of. Fields
    that are missing are zero."""
    return {
        field.name: (np.bool_ if field.width == 1 else np.int64)(command.get(field.name, 0))
        for field in engine.format.fields
    }


def leaves_nothing_out(command: Any) -> Any:
    """The condition of engines without streams."""
    return ~command["skip"].any()


def require_words(words: npt.NDArray[Any], weights: npt.NDArray[Any]) -> None:
    """Refuse words int8[..., steps, lanes] and weights int8[steps, columns, lanes] that do not belong together.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If steps or lanes differ.
    """
    require_int8(words=words, weights=weights)
    steps, _, lanes = weights.shape
    if words.shape[-2:] != (steps, lanes):
        raise ValueError(f"words must end in the {steps} steps of {lanes} lanes of weights, not {words.shape[-2:]}")


def require_int8(**arrays: npt.NDArray[Any]) -> None:
    """Refuse other arrays by name, with a TypeError."""
    for name, array in arrays.items():
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
