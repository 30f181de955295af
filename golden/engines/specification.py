"""The specification of an engine, which golden machine, hardware, prediction, manual and tests read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..elements import NARROW_BITS
from ..memories import LocalMemory
from ..numerics.requant import requantise
from .engine import Engine

if TYPE_CHECKING:
    from ..config import Config

# The issue stage reads from it how many steps, words and weight words the windows of an engine have.


@dataclass(frozen=True, kw_only=True)
class FurtherResults:
    """The results of a window beside its first one, which have as many lanes and belong to the same tile.

    Attributes
    ----------
    count, pitch : str
        Names of the fields of the engine's commands with their number, and with the distance of results in bytes.
    most : callable
        Function of the configuration that returns their greatest number.
    """

    count: str
    pitch: str
    most: Callable[[Config], int]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The way in which windows of an engine are issued.

    Attributes
    ----------
    weight_words : str or None
        Name of the field with the number of weight words of a tile; as many last steps of a window take one each. None
        if the engine takes no weights.
    read_steps : callable or None
        Function of command and configuration that returns how many steps of a window, the first ones and at least one,
        read their word; the words of the others count as zero, whatever is stored at their addresses. Its expressions
        mean the same for NumPy integers and for Amaranth values. None if all steps read.
    masks_words : bool
        Whether entries of step lists hold the number of bytes of a word that count.
    has_streams : bool
        Whether the windows of an inner loop are one stream of words: each but the first may leave out ``skip`` steps,
        and its sum may begin at any step from there on. Else ``skip`` must be zero, and a sum begins at the first step.
    is_burst : bool
        Whether the steps of a window come without a pause, and its results likewise, ``lanes`` a cycle, the first
        ``latency`` cycles after the first word. Commands wait for every earlier result.
    further : FurtherResults or None
        None if a window has one result, or those of a burst, which lie side by side. The results of a window come one
        after the other, in successive cycles.
    fields : tuple of str
        Fields of the engine's commands that the hardware needs with every step.
    """

    weight_words: str | None = None
    read_steps: Callable[[Any, Config], Any] | None = None
    masks_words: bool = False
    has_streams: bool = False
    is_burst: bool = False
    further: FurtherResults | None = None
    fields: tuple[str, ...] = ()

    def steps_read(self, command: Mapping[str, int], config: Config) -> int:
        """Return the number of steps of a window that read their word."""
        return command["steps"] if self.read_steps is None else int(self.read_steps(command, config))

    def tile_weight_words(self, command: Mapping[str, int]) -> int:
        """Return the number of weight words of a tile."""
        return 0 if self.weight_words is None else command[self.weight_words]

    def most_further(self, config: Config) -> int:
        """Return the greatest number of results of a window beside its first one."""
        return 0 if self.further is None else self.further.most(config)

    def results(self, command: Mapping[str, int]) -> int:
        """Return the number of results of a window; those of a burst count as one."""
        return 1 if self.further is None else 1 + command.get(self.further.count, 0)

    def result_offsets(self, command: Mapping[str, int]) -> list[int]:
        """Return the offsets of a window's results from its first one, in bytes."""
        if self.further is None:
            return [0]
        return [number * command.get(self.further.pitch, 0) for number in range(self.results(command))]


def comes_too_early(steps: Any, further: Any) -> Any:
    """Return whether a command's first result could come among those of the command before it, of the same engine.

    Windows follow one another without a gap, also those of two commands: the first result of a window of ``steps``
    steps comes so many cycles after the first one of the window before, which has ``further`` results more, one in each
    cycle. Arguments are integers or Amaranth values.

    It is the only condition on two commands. ``docs/verification.md`` explains why all others, which are on a single
    command, hold whatever commands are around it.
    """
    return steps <= further


#: The issue of engines that take one word each step and no weights, as for a pooling.
ANY_ISSUE = Issue()


# An epilogue converts an engine's totals to codes; each command chooses one of its engine's epilogues.

#: Cycles from the addends of all epilogues to the choice between them.
CHOICE_LATENCY = 1


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """A way to convert totals to codes.

    There are three kinds. Every core has ``REQUANTISE``. Another one may give the requantiser *addends* of its own,
    in place of accumulator and bias. A *whole* epilogue makes the codes itself, of all lanes of a result at a time,
    without requantiser and tables.

    Attributes
    ----------
    name : str
        The name in lower case, as within names of signals.
    codes : callable
        The golden function of totals of a tile's windows (int32[..., lanes] or int64[..., lanes]), parameters and
        command, which returns int8[..., lanes]. Parameters are uint64[lanes], or, for a whole epilogue, biases
        int16[lanes].
    chosen : callable or None
        Function of a command's fields that returns whether the command chooses this epilogue, as one bit, in an
        expression that means the same for NumPy integers and for Amaranth values. None: every command that chooses no
        other.
    is_whole : bool
        Whether it is a whole epilogue, whose totals and biases have ``NARROW_BITS`` bits.
    addends_latency : int or None
        Cycles of the hardware from totals to addends; None if it has no addends of its own.
    fields : tuple of str
        Fields of the engine's commands that the hardware needs with each group of results.
    """

    name: str
    codes: Callable[[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, int]], npt.NDArray[np.int8]]
    chosen: Callable[[Any], Any] | None = None
    is_whole: bool = False
    addends_latency: int | None = None
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.is_whole and self.addends_latency is not None:
            raise ValueError(f"the epilogue {self.name} must be whole or have addends, not both")

    @property
    def has_hardware(self) -> bool:
        """Whether it needs hardware beside the requantiser."""
        return self.is_whole or self.addends_latency is not None

    def at_once(self, config: Config) -> int:
        """Return the lanes of a group: the results that are finished in one cycle, with one word of parameters."""
        return config.array.lanes if self.is_whole else config.array.requant_lanes

    def is_built(self, config: Config) -> bool:
        """Return whether a configuration can have it: a word of parameters must hold a bias for each lane of a whole
        epilogue."""
        return not self.is_whole or config.array.lanes * NARROW_BITS // 8 <= config.parameter_word_bytes


def _requantise(
    totals: npt.NDArray[Any], parameters: npt.NDArray[Any], command: Mapping[str, int]
) -> npt.NDArray[np.int8]:
    return requantise(totals, parameters, *clamp_of(command))


def clamp_of(command: Mapping[str, int]) -> tuple[int, int, int]:
    """Return zero point and limits of a command's codes."""
    return command["zero_point"], command["low"], command["high"]


#: The epilogue of every core: accumulator and bias are added, scaled and rounded.
REQUANTISE = Epilogue(name="requantise", codes=_requantise)


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
    """The windows of one tile, the argument of an engine's golden function.

    Attributes
    ----------
    command : mapping
        Fields of COMPUTE and the engine's own, legal ones.
    config : Config
    words : int8[..., inner, steps, lanes]
        Activation words of each window, including those that it skips because the window before has read them.
    weights : int8[weight_words, columns, lanes]
        Weight words of the tile; there are none if the engine takes no weights.
    memories : mapping of LocalMemory to uint8[size_bytes]
        All local memories, for tables of the engine's own and for the step list.
    rng : numpy.random.Generator
        Source of bytes that are undefined in hardware.
    """

    command: Command
    config: Config
    words: Int8
    weights: Int8
    memories: Mapping[LocalMemory, UInt8]
    rng: np.random.Generator


@dataclass(frozen=True, slots=True)
class RandomWindow:
    """A random window for tests.

    Attributes
    ----------
    fields : dict of str to int
        ``steps``, the engine's own fields, and every other field whose value matters.
    sum_start : int
        Index of the step with the flag ``clear``.
    is_one_column : bool
        Whether the sum may begin with words that only the first column sees; weights of the others must be zero then.
    """

    fields: dict[str, int]
    sum_start: int = 0
    is_one_column: bool = False


def any_steps(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    """Draw a window of an engine that takes any number of steps, often one or two."""
    return RandomWindow({"steps": int(rng.choice(np.array([1, 2, rng.integers(1, size)])))})


def _no_columns(config: Config) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class EngineSpecification:
    """The definition of an engine but for its hardware. See ``docs/adding-an-engine.md``.

    Attributes
    ----------
    engine : Engine
        The part for instruction set and configuration.
    notes : str
        The meaning of a command for the engine, for the manual.
    results : str
        Name of the number that limits the results of a window: of the configuration, as ``"array.lanes"``, or of the
        engine's own configuration, as ``"width"``.
    totals : callable
        The golden function, from :class:`TileWindows` to totals int32[..., inner, lanes] or int64[...], before the
        epilogue; int32[..., inner, results, lanes] for an engine with further results.
    latency : callable
        Function of configuration and command that returns the cycles from the last word of a window to its result, or,
        for an engine with bursts, from the first word to the first results.
    random_window : callable
        Function of configuration, ``numpy.random.Generator`` and a size, at least 2, that returns a
        :class:`RandomWindow` with at most so many weight words, or as few as it can have, and about so many steps at
        most.
    conditions : callable or None
        Conditions on its commands beside those on all: a function of command and configuration that returns a list of
        bits. Its expressions mean the same for NumPy integers and for Amaranth values: ``&``, ``|``, ``~`` (of bits),
        ``any()``, comparisons and ``+``. Fields are read as ``command["steps"]``.
    issue : Issue
        The way in which its windows are issued.
    epilogues : tuple of Epilogue
        The epilogues of its totals, in the order in which commands choose; the last one serves all other commands.
    is_binary : bool
        Whether every bit of a word is a binary value. Configurations with such an engine can pack results, see
        :mod:`~lutterfly.golden.machine.write_back`.
    borrowed_columns : callable
        Function of the configuration that returns how many columns of the array, the first ones, it borrows multipliers
        of: they multiply values of 16 bits by the weights of those columns.
    brings_weights : bool
        Whether it gives those columns weights of its own, of ``DIFFERENCE_BITS`` bits, in place of theirs.
    random_scale : float or None
        The scale that tests use for its results; None for any.
    """

    engine: Engine[Any]
    notes: str
    results: str
    totals: Callable[[TileWindows], npt.NDArray[np.signedinteger[Any]]]
    latency: Callable[[Config, Command], int]
    random_window: Callable[[Config, np.random.Generator, int], RandomWindow]
    conditions: Callable[[Any, Config], list[Any]] | None = None
    issue: Issue = ANY_ISSUE
    epilogues: tuple[Epilogue, ...] = (REQUANTISE,)
    is_binary: bool = False
    borrowed_columns: Callable[[Config], int] = _no_columns
    brings_weights: bool = False
    random_scale: float | None = None

    def __post_init__(self) -> None:
        if self.issue.has_streams and self.conditions is None:
            raise ValueError("conditions must be given for an engine with streams, not None")
        if [epilogue.name for epilogue in self.epilogues if epilogue.chosen is None] != [self.epilogues[-1].name]:
            raise ValueError(f"epilogues must end with one that is chosen by all others, not be {self.epilogues}")

    @property
    def name(self) -> str:
        """The name in lower case, as within names of signals and files."""
        return self.engine.name.lower()

    def most_results(self, config: Config) -> int:
        """Return the greatest number of results of a window, the limit of the fields ``lanes`` and ``last_lanes``."""
        limit: int = attrgetter(self.results)(config if "." in self.results else config.engines[self.engine])
        return limit

    def legal(self, command: Any, config: Config) -> Any:
        """Return whether a command meets the conditions of this engine, as one bit.

        ``command`` has the engine's own fields beside those of all engines, as NumPy integers or Amaranth values.
        """
        conditions = [] if self.conditions is None else self.conditions(command, config)
        for epilogue, chosen in self.choices(command):
            if epilogue.is_whole:
                # A whole epilogue writes codes without packing; where it is not built, no command may choose it.
                after = command["packed"] | command["table_enable"]
                conditions.append(~(chosen & after) if epilogue.is_built(config) else ~chosen)
        return reduce(and_, conditions if self.issue.has_streams else [*conditions, leaves_nothing_out(command)])

    def is_legal(self, command: Command, config: Config) -> bool:
        """Return whether a command of plain integers meets the conditions of this engine."""
        return bool(self.legal(as_numpy(command, self.engine), config))

    @property
    def has_conditions(self) -> bool:
        """Whether its commands must meet other conditions than those of engines without streams."""
        return self.conditions is not None or any(epilogue.is_whole for epilogue in self.epilogues)

    def choices(self, command: Any) -> list[tuple[Epilogue, Any]]:
        """Return each epilogue but the last one, with a bit: whether a command chooses it."""
        choices: list[tuple[Epilogue, Any]] = []
        for epilogue in self.epilogues:
            if epilogue.chosen is not None:
                chosen = epilogue.chosen(command)
                for _, before in choices:
                    chosen &= ~before
                choices.append((epilogue, chosen))
        return choices

    def epilogue_of(self, command: Command) -> Epilogue:
        """Return the epilogue that a command of plain integers chooses."""
        return next(
            epilogue
            for epilogue in self.epilogues
            if epilogue.chosen is None or epilogue.chosen(as_numpy(command, self.engine))
        )


def as_numpy(command: Command, engine: Engine[Any]) -> dict[str, np.bool_ | np.int64]:
    """Return the fields of an engine's COMPUTE command as NumPy integers, those of one bit as booleans, for conditions.
    Missing fields are zero."""
    return {
        field.name: (np.bool_ if field.width == 1 else np.int64)(command.get(field.name, 0))
        for field in engine.format.fields
    }


def leaves_nothing_out(command: Any) -> Any:
    """Return the condition of engines without streams: no step is skipped."""
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
