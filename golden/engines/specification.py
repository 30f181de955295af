"""What an engine is: a specification, which golden machine, hardware, prediction, manual and tests ask."""

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

# What the issue stage has to know of an engine: its steps, words and weight words.


@dataclass(frozen=True, kw_only=True)
class FurtherResults:
    """Results of a window beside its first one: each as many lanes, and in the same tile.

    Attributes
    ----------
    count, pitch : str
        The fields of the engine's commands that say how many there are, and how far apart results are, in bytes.
    most : callable
        Configuration to how many there are at most.
    """

    count: str
    pitch: str
    most: Callable[[Config], int]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """How the windows of an engine are issued.

    Attributes
    ----------
    weight_words : str or None
        The field that says how many weight words a tile has; so many last steps of a window take one each. None if the
        engine takes no weights.
    read_steps : callable or None
        Command and configuration to the steps of a window, the first ones and at least one, that read their word; the
        words of the others count as null whatever stands at their addresses. In expressions that mean the same for
        NumPy integers and for Amaranth values. None for all.
    masks_words : bool
        Step lists say how many bytes of a word count.
    has_streams : bool
        The windows of an inner loop are one stream of words: each but the first may leave out ``skip`` steps, and its
        sum may begin at any step from there on. Else ``skip`` must be zero, and a sum begins at the first step.
    is_burst : bool
        The steps of a window come one after the other, and its results likewise, ``lanes`` a cycle, the first
        ``latency`` after the first word. Commands wait for every earlier result.
    further : FurtherResults or None
        None if a window has one result, or those of a burst, which lie side by side. The results of a window come one
        after the other, in successive cycles.
    fields : tuple of str
        Fields of the engine's commands that the hardware wants to know with every step.
    """

    weight_words: str | None = None
    read_steps: Callable[[Any, Config], Any] | None = None
    masks_words: bool = False
    has_streams: bool = False
    is_burst: bool = False
    further: FurtherResults | None = None
    fields: tuple[str, ...] = ()

    def steps_read(self, command: Mapping[str, int], config: Config) -> int:
        """The steps of a window that read their word."""
        return command["steps"] if self.read_steps is None else int(self.read_steps(command, config))

    def tile_weight_words(self, command: Mapping[str, int]) -> int:
        """Weight words of a tile."""
        return 0 if self.weight_words is None else command[self.weight_words]

    def most_further(self, config: Config) -> int:
        """Results of a window beside its first one at most."""
        return 0 if self.further is None else self.further.most(config)

    def results(self, command: Mapping[str, int]) -> int:
        """Results of a window, those of a burst as one."""
        return 1 if self.further is None else 1 + command.get(self.further.count, 0)

    def result_offsets(self, command: Mapping[str, int]) -> list[int]:
        """Where the results of a window lie, in bytes from its first one on."""
        if self.further is None:
            return [0]
        return [number * command.get(self.further.pitch, 0) for number in range(self.results(command))]


def comes_too_early(steps: Any, further: Any) -> Any:
    """Whether a command's first result could come among those of the command before it, of the same engine.

    Windows follow one another without a gap, also those of two commands: the first result of a window of ``steps``
    steps comes so many cycles after the first one of the window before, which has ``further`` results more, one in each
    cycle. In expressions that mean the same for integers and for Amaranth values.

    It is the one condition on two commands. What keeps all others, which are on one, whatever commands are around it
    stands in ``docs/verification.md``.
    """
    return steps <= further


#: Words only, one each step, as of a pooling.
ANY_ISSUE = Issue()


# What makes codes of the totals of an engine: its finishes, of which each command chooses one.

#: Cycles from the addends of all finishes to the choice between them.
CHOICE_LATENCY = 1


@dataclass(frozen=True, kw_only=True)
class Finish:
    """One way from totals to codes.

    There are three kinds. ``REQUANTISE`` is what every core has. Another one may give the requantiser *addends* of its
    own, in place of accumulator and bias. A *whole* finish makes the codes itself, of all lanes of a result at a time,
    without requantiser and tables.

    Attributes
    ----------
    name : str
        In lower case, as it stands in the names of signals.
    codes : callable
        The twin: totals of a tile's windows (int32[..., lanes] or int64[..., lanes]), parameters and command to
        int8[..., lanes]. Parameters are uint64[lanes], of a whole finish biases int16[lanes].
    chosen : callable or None
        Fields of the engine's commands to one bit: whether a command wants it, in an expression that means the same for
        NumPy integers and for Amaranth values. None: every command that chooses no other.
    is_whole : bool
        Its totals are of ``NARROW_BITS`` bits, and so are its biases.
    addends_latency : int or None
        Cycles in which the hardware makes its addends of totals; None if it has none of its own.
    fields : tuple of str
        Fields of the engine's commands that the hardware wants to know with each group of results.
    """

    name: str
    codes: Callable[[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, int]], npt.NDArray[np.int8]]
    chosen: Callable[[Any], Any] | None = None
    is_whole: bool = False
    addends_latency: int | None = None
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.is_whole and self.addends_latency is not None:
            raise ValueError(f"the finish {self.name} must be whole or have addends, not both")

    @property
    def has_hardware(self) -> bool:
        """Whether it needs more than the requantiser."""
        return self.is_whole or self.addends_latency is not None

    def at_once(self, config: Config) -> int:
        """Lanes of a group: results that are finished in one cycle, with one word of parameters."""
        return config.array.lanes if self.is_whole else config.array.requant_lanes

    def is_built(self, config: Config) -> bool:
        """Whether a configuration can have it: a word of parameters holds a bias for each lane of a whole finish."""
        return not self.is_whole or config.array.lanes * NARROW_BITS // 8 <= config.parameter_word_bytes


def _requantise(
    totals: npt.NDArray[Any], parameters: npt.NDArray[Any], command: Mapping[str, int]
) -> npt.NDArray[np.int8]:
    return requantise(totals, parameters, *clamp_of(command))


def clamp_of(command: Mapping[str, int]) -> tuple[int, int, int]:
    """Zero point and limits of a command's codes."""
    return command["zero_point"], command["low"], command["high"]


#: Accumulator and bias are added, scaled and rounded.
REQUANTISE = Finish(name="requantise", codes=_requantise)


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
        :mod:`~lutterfly.golden.machine.write_back`.
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
