"""The configuration: every parameter of one accelerator, validated, with presets, JSON and a hash.

Standard library only, so that every other folder can import it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from . import records
from .butterfly import Pattern
from .isa import COMPUTE, Engine, LocalMemory
from .memories import MEMORIES, PARAMETER_BYTES

#: Commands of each queue that the program memory holds at most: errors count commands modulo this number.
RESIDENT_COMMANDS = 1 << 16
#: Skips that a COMPUTE command has a bit for.
_MOST_SKIPS = COMPUTE.field("skips").width
#: Words that a COMPUTE command can address.
_WORDS = {name: 1 << COMPUTE.field(name).width for name in ("weight", "parameter")}


def _check(condition: bool, name: str, constraint: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{name} must be {constraint}, not {value}")


def _check_integers(part: object, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        # To Python, true and false are integers.
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, not {value!r}")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """The multiplier array and what follows it.

    Attributes
    ----------
    lanes : int
        Input channels taken per cycle (L): bytes in an activation word.
    columns : int
        Output channels computed at a time (O).
    requant_lanes : int
        Accumulators requantised per cycle (R).
    """

    lanes: int
    columns: int
    requant_lanes: int

    def __post_init__(self) -> None:
        _check_integers(self, *(field.name for field in dataclasses.fields(self)))
        for name in ("lanes", "columns", "requant_lanes"):
            value = getattr(self, name)
            _check(_is_power_of_two(value), name, "a power of two", value)
        _check(4 <= self.lanes <= 64, "lanes", "between 4 and 64", self.lanes)
        _check(self.columns <= self.lanes, "columns", f"at most lanes ({self.lanes})", self.columns)
        _check(
            self.requant_lanes <= self.columns, "requant_lanes", f"at most columns ({self.columns})", self.requant_lanes
        )


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """The on-chip memories.

    Attributes
    ----------
    feature_bytes, weight_bytes, parameter_bytes : int
        Sizes in bytes, powers of two.
    tables : int
        Transfer tables of 256 bytes.
    list_entries : int
        Entries of the step lists.
    """

    feature_bytes: int
    weight_bytes: int
    parameter_bytes: int
    tables: int
    list_entries: int

    def __post_init__(self) -> None:
        _check_integers(self, *(field.name for field in dataclasses.fields(self)))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            _check(_is_power_of_two(value), field.name, "a power of two", value)
        _check(self.feature_bytes <= 1 << 24, "feature_bytes", "at most 16777216", self.feature_bytes)
        _check(self.weight_bytes <= 1 << 24, "weight_bytes", "at most 16777216", self.weight_bytes)
        _check(self.parameter_bytes <= 1 << 24, "parameter_bytes", "at most 16777216", self.parameter_bytes)
        _check(self.tables <= 256, "tables", "at most 256", self.tables)
        _check(self.list_entries <= 4096, "list_entries", "at most 4096", self.list_entries)


@dataclass(frozen=True, slots=True)
class AxiConfig:
    """The AXI4 master port.

    Attributes
    ----------
    data_bits : int
        Width of the data bus: 32, 64 or 128.
    outstanding : int
        Read bursts in flight at most, and write bursts likewise.
    """

    data_bits: int
    outstanding: int = 8

    #: Fixed by the design: 32-bit addresses, 4-bit identifiers, bursts of at most 16 beats.
    ADDRESS_BITS = 32
    ID_BITS = 4
    BURST_BEATS = 16

    def __post_init__(self) -> None:
        _check_integers(self, "data_bits", "outstanding")
        _check(self.data_bits in (32, 64, 128), "data_bits", "32, 64 or 128", self.data_bits)
        _check(self.outstanding in range(1, 17), "outstanding", "between 1 and 16", self.outstanding)

    @property
    def data_bytes(self) -> int:
        """Bytes in a beat."""
        return self.data_bits // 8


@dataclass(frozen=True, slots=True)
class DepthwiseConfig:
    """What the engine DEPTHWISE is built with.

    Attributes
    ----------
    taps : int
        Columns of the array that chain (T).
    """

    taps: int

    def __post_init__(self) -> None:
        _check_integers(self, "taps")
        _check(self.taps >= 1, "taps", "at least 1", self.taps)


@dataclass(frozen=True, slots=True)
class AddConfig:
    """What the engine ADD is built with.

    Attributes
    ----------
    tables : int
        Pairs of tables, a power of two.
    """

    tables: int

    def __post_init__(self) -> None:
        _check_integers(self, "tables")
        _check(_is_power_of_two(self.tables), "tables", "a power of two", self.tables)
        _check(self.tables <= 16, "tables", "at most 16", self.tables)


@dataclass(frozen=True, slots=True)
class FpcConfig:
    """What the engine FPC is built with: the greatest butterfly, see :mod:`.butterfly`.

    Attributes
    ----------
    width : int
        Channels at most, a power of two.
    direction : str
        ``"bottom-up"`` or ``"top-down"``.
    densities : tuple of str
        Of each stage; none for those that belong to the direction.
    skips : tuple of (int, int)
        Those that there can be.
    further_words : int
        Words of a memory for the columns of weights that are more than the weight memory has, if there are any.
    """

    width: int
    direction: str = "bottom-up"
    densities: tuple[str, ...] = ()
    skips: tuple[tuple[int, int], ...] = ()
    further_words: int = 64

    def __post_init__(self) -> None:
        _check_integers(self, "width", "further_words")
        _check(_is_power_of_two(self.further_words), "further_words", "a power of two", self.further_words)
        _check(self.further_words <= 256, "further_words", "at most 256", self.further_words)
        _check(_is_power_of_two(self.width), "width", "a power of two", self.width)
        _check(2 <= self.width <= 256, "width", "between 2 and 256", self.width)
        _check(len(self.skips) <= _MOST_SKIPS, "skips", f"at most {_MOST_SKIPS}", len(self.skips))
        # Direction, densities and skips that do not fit the width are errors of the pattern's.
        _ = self.pattern

    @property
    def pattern(self) -> Pattern:
        """The butterfly."""
        return Pattern.of(self.width, self.width, self.direction, self.densities or None, self.skips)

    @property
    def columns(self) -> int:
        """Weights of a value: columns of weights."""
        return self.pattern.weights // self.width


@dataclass(frozen=True, slots=True)
class Config:
    """One accelerator.

    Attributes
    ----------
    array, memory, axi
        The parts, see their classes.
    engines : tuple of Engine
        The engines that exist; a command for another one is illegal.
    depthwise, add, fpc
        What those engines are built with; without meaning where they are not.
    resident_commands : int
        Commands of each queue that the program memory holds; longer programs stream through it.
    """

    array: ArrayConfig
    memory: MemoryConfig
    axi: AxiConfig
    engines: tuple[Engine, ...] = (Engine.MAC, Engine.MAXIMUM, Engine.DEPTHWISE, Engine.ADD)
    depthwise: DepthwiseConfig = DepthwiseConfig(taps=3)
    add: AddConfig = AddConfig(tables=2)
    fpc: FpcConfig = FpcConfig(width=128)
    resident_commands: int = 64

    def __post_init__(self) -> None:
        lanes = self.array.lanes
        _check_integers(self, "resident_commands")
        _check(self.axi.data_bytes <= lanes, "data_bits", f"at most 8 * lanes ({8 * lanes})", self.axi.data_bits)
        _check(
            self.memory.feature_bytes >= 4 * lanes, "feature_bytes", f"at least {4 * lanes}", self.memory.feature_bytes
        )
        _check(
            self.memory.weight_bytes >= 2 * self.weight_word_bytes,
            "weight_bytes",
            f"at least two words of {self.weight_word_bytes} bytes",
            self.memory.weight_bytes,
        )
        _check(
            self.weight_words <= _WORDS["weight"],
            "weight_bytes",
            f"at most {_WORDS['weight']} words of {self.weight_word_bytes} bytes",
            self.memory.weight_bytes,
        )
        _check(
            1 <= self.parameter_words <= _WORDS["parameter"],
            "parameter_bytes",
            f"between 1 and {_WORDS['parameter']} words of {self.parameter_word_bytes} bytes",
            self.memory.parameter_bytes,
        )
        _check(
            _is_power_of_two(self.resident_commands) and 4 <= self.resident_commands <= RESIDENT_COMMANDS,
            "resident_commands",
            f"a power of two between 4 and {RESIDENT_COMMANDS}",
            self.resident_commands,
        )
        _check(
            Engine.MAC in self.engines and len(set(self.engines)) == len(self.engines),
            "engines",
            "different ones, with MAC among them",
            ", ".join(engine.name for engine in self.engines) or "none",
        )
        _check(
            Engine.DEPTHWISE not in self.engines or self.depthwise.taps <= self.array.columns,
            "depthwise.taps",
            f"at most columns ({self.array.columns})",
            self.depthwise.taps,
        )

    def size_bytes(self, memory: LocalMemory) -> int:
        """Bytes of one memory, a power of two."""
        return MEMORIES[memory].size_bytes(self)

    @property
    def multipliers(self) -> int:
        """Multipliers of the array."""
        return self.array.lanes * self.array.columns

    @property
    def weight_word_bytes(self) -> int:
        """Bytes of one weight word: lanes weights for each column."""
        return self.array.lanes * self.array.columns

    @property
    def weight_words(self) -> int:
        """Words of the weight memory."""
        return self.memory.weight_bytes // self.weight_word_bytes

    @property
    def further_columns(self) -> int:
        """Columns of weights of a butterfly that the weight memory has not."""
        return max(self.fpc.columns - self.array.columns, 0)

    @property
    def further_word_bytes(self) -> int:
        """Bytes of a word of those, a power of two: lanes weights for each."""
        return self.array.lanes << max(self.further_columns - 1, 0).bit_length()

    @property
    def parameter_word_bytes(self) -> int:
        """Bytes of one parameter word: those of a channel for each requantise lane."""
        return PARAMETER_BYTES * self.array.requant_lanes

    @property
    def parameter_words(self) -> int:
        """Words of the parameter memory."""
        return self.memory.parameter_bytes // self.parameter_word_bytes

    def to_json(self) -> str:
        """The configuration as canonical JSON: sorted keys, engines by name."""
        plain = dataclasses.asdict(self)
        plain["engines"] = [engine.name for engine in self.engines]
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            If the text is not JSON, or a field is missing, unknown, of the wrong kind or out of range.
        """
        config: Config = records.read(cls, records.parse(text), "configuration")
        return config

    @property
    def hash(self) -> int:
        """32 bits that tell configurations apart; the hardware and every program carry it."""
        return int.from_bytes(hashlib.sha256(self.to_json().encode()).digest()[:4], "little")


PRESETS: dict[str, Config] = {
    "tiny": Config(
        array=ArrayConfig(lanes=4, columns=2, requant_lanes=1),
        memory=MemoryConfig(
            feature_bytes=8 << 10, weight_bytes=16 << 10, parameter_bytes=4 << 10, tables=4, list_entries=1024
        ),
        axi=AxiConfig(data_bits=32),
        engines=(
            Engine.MAC,
            Engine.MAXIMUM,
            Engine.DEPTHWISE,
            Engine.XNOR,
            Engine.ADD,
            Engine.BINARY_MAXIMUM,
        ),
        depthwise=DepthwiseConfig(taps=2),
    ),
    "ecp5-85k": Config(
        array=ArrayConfig(lanes=16, columns=8, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=64 << 10, weight_bytes=256 << 10, parameter_bytes=32 << 10, tables=8, list_entries=1024
        ),
        axi=AxiConfig(data_bits=64),
        engines=(
            Engine.MAC,
            Engine.MAXIMUM,
            Engine.DEPTHWISE,
            Engine.XNOR,
            Engine.FPC,
            Engine.ADD,
            Engine.BINARY_MAXIMUM,
        ),
        depthwise=DepthwiseConfig(taps=3),
        fpc=FpcConfig(width=256),
    ),
    "large": Config(
        array=ArrayConfig(lanes=32, columns=32, requant_lanes=8),
        memory=MemoryConfig(
            feature_bytes=512 << 10, weight_bytes=2 << 20, parameter_bytes=64 << 10, tables=16, list_entries=1024
        ),
        axi=AxiConfig(data_bits=128),
        depthwise=DepthwiseConfig(taps=5),
    ),
}
DEFAULT_PRESET = "ecp5-85k"
