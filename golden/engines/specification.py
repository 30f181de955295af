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
from ..requant import requantise
from .engine import Engine

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
    """

    fields: dict[str, int]
    sum_start: int = 0


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
        The twin: :class:`TileWindows` to totals int32[..., inner, results] or int64[...], before they are finished.
    latency : callable
        Configuration and command to the cycles from the last word of a window to its result, which has that of the
        array's lanes at most; from the first word to the first results, if the engine is one of bursts.
    random_window : callable
        Configuration, ``numpy.random.Generator`` and a size, at least 2, to a :class:`RandomWindow` that takes at most
        so many weight words, and about so many steps at most.
    conditions : callable or None
        What its commands must meet beside the conditions of all: command and configuration to a list of bits, in
        expressions that mean the same for NumPy integers and for Amaranth values: ``&``, ``|``, ``~`` (of bits),
        ``any()``, comparisons and ``+``. Fields are taken as ``command["steps"]``.
    weight_words : str or None
        The field that says how many weight words a tile has; so many last steps of a window take one each. None if the
        engine takes no weights.
    read_steps : callable or None
        Command and configuration to the steps of a window, the first ones and at least one, that read their word; the
        words of the others count as null whatever stands at their addresses. In expressions as those of ``conditions``.
        None for all.
    masks_words : bool
        Step lists say how many bytes of a word count.
    is_binary : bool
        Every bit of a word is a binary value. Configurations with such an engine can pack results, see
        :mod:`~lutterfly.golden.packing`.
    has_streams : bool
        The windows of an inner loop are one stream of words: each but the first may leave out ``skip`` steps, and its
        sum may begin at any step from there on. Else ``skip`` must be zero, and a sum begins at the first step.
    direct : str or None
        The field that says that results are finished all lanes at a time, by ``finish_direct``: then a word of
        parameters holds a bias of 16 bits for each of them.
    finish_direct : callable or None
        Totals int32[..., lanes], biases int16[lanes] and command to codes.
    is_burst : bool
        The steps of a window come one after the other, and its results likewise, ``lanes`` a cycle, the first
        ``latency`` behind the first word. Commands wait for every earlier result.
    borrowed_columns : callable
        Configuration to the columns of the array, the first ones, on whose multipliers it works: values of 16 bits by
        the weights of those columns.
    step_fields : tuple of str
        Fields that the hardware wants to know with every step.
    result_fields : tuple of str
        Fields that are wanted where its totals are finished.
    finish : callable
        What makes codes of totals; as :func:`~lutterfly.golden.requant.requantise`.
    terms_latency : int
        Cycles in which the hardware makes of its totals the terms that the requantiser adds.
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
    weight_words: str | None = None
    read_steps: Callable[[Any, Config], Any] | None = None
    masks_words: bool = False
    is_binary: bool = False
    has_streams: bool = False
    direct: str | None = None
    finish_direct: Callable[[Int32, Int16, Command], Int8] | None = None
    is_burst: bool = False
    borrowed_columns: Callable[[Config], int] = _no_columns
    step_fields: tuple[str, ...] = ()
    result_fields: tuple[str, ...] = ()
    finish: Callable[..., Int8] = requantise
    terms_latency: int = 0
    random_scale: float | None = None

    def __post_init__(self) -> None:
        if self.has_streams and self.conditions is None:
            raise ValueError("conditions must be given for an engine with streams, not None")

    @property
    def name(self) -> str:
        """In lower case, as it stands in the names of signals and files."""
        return self.engine.name.lower()

    @property
    def is_requantised(self) -> bool:
        """Whether its totals are finished as accumulators are."""
        return self.finish is requantise

    def most_results(self, config: Config) -> int:
        """Results of a window at most: the limit of the fields ``lanes`` and ``last_lanes``."""
        limit: int = attrgetter(self.results)(config if "." in self.results else config.engines[self.engine])
        return limit

    def legal(self, command: Any, config: Config) -> Any:
        """The conditions that distinguish its commands, as one bit.

        ``command`` has the engine's own fields beside those of all: NumPy integers, or Amaranth's values.
        """
        conditions = [] if self.conditions is None else self.conditions(command, config)
        if self.direct is not None:
            conditions = [*conditions, ~(command["packed"] & command[self.direct])]
        return reduce(and_, conditions if self.has_streams else [*conditions, leaves_nothing_out(command)])

    def is_legal(self, command: Command, config: Config) -> bool:
        """Whether a command of plain integers meets those conditions."""
        return bool(self.legal(as_numpy(command, self.engine), config))

    def is_direct(self, command: Any) -> Any:
        """Whether a command's results are finished directly; of Amaranth's values, the bit that says so."""
        return False if self.direct is None else command[self.direct]

    def steps_read(self, command: Command, config: Config) -> int:
        """The steps of a window that read their word."""
        return command["steps"] if self.read_steps is None else int(self.read_steps(command, config))

    def tile_weight_words(self, command: Command) -> int:
        """Weight words of a tile."""
        return 0 if self.weight_words is None else command[self.weight_words]


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
