"""The configuration: every parameter of one accelerator, validated, with JSON and a hash.

Every other folder can import it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from . import records
from .config_parts import ArenaConfig, ArrayConfig, AxiConfig, ClusterConfig, MemoryConfig
from .engines import ADD, DEPTHWISE, MAC, MAXIMUM, EngineConfigs
from .isa import COMPUTE
from .memories import PARAMETER_BYTES, LocalMemory
from .records import check, check_flags, check_integers, is_power_of_two

#: Commands of each queue that the program memory holds at most: errors count commands modulo this number.
RESIDENT_COMMANDS = 1 << 16
#: Words that a COMPUTE command can address.
_WORDS = {name: 1 << COMPUTE.field(name).width for name in ("weight", "parameter")}


@dataclass(frozen=True, slots=True)
class Config:
    """One accelerator: what each of its cores has, and how many there are.

    Attributes
    ----------
    array, memory, axi
        The parts, see their classes.
    engines : EngineConfigs
        The engines that are built, with the configuration of each; a command for any other is illegal.
    resident_commands : int
        Commands of each queue that the program memory holds; longer programs stream through it.
    cluster : ClusterConfig
        The number of cores with all these parts; one by default.
    arena : ArenaConfig
        Whether the arena is on the chip, and how large; external memory where it is not given.
    hands_over : bool
        Whether a command of another engine than the one before, or of bursts, begins when the last result has left that
        one and the result FIFO; else when it has been written.
    """

    array: ArrayConfig
    memory: MemoryConfig
    axi: AxiConfig
    engines: EngineConfigs = field(default_factory=lambda: EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD))
    resident_commands: int = 64
    cluster: ClusterConfig = field(default_factory=ClusterConfig, metadata=records.LATER)
    arena: ArenaConfig = field(default_factory=ArenaConfig, metadata=records.LATER)
    hands_over: bool = field(default=False, metadata=records.LATER)

    def __post_init__(self) -> None:
        lanes = self.array.lanes
        check_integers(self, "resident_commands")
        check_flags(self, "hands_over")
        check(self.axi.data_bytes <= lanes, "data_bits", f"at most 8 * lanes ({8 * lanes})", self.axi.data_bits)
        check(
            self.memory.feature_bytes >= 4 * lanes, "feature_bytes", f"at least {4 * lanes}", self.memory.feature_bytes
        )
        check(
            self.memory.weight_bytes >= 2 * self.weight_word_bytes,
            "weight_bytes",
            f"at least two words of {self.weight_word_bytes} bytes",
            self.memory.weight_bytes,
        )
        check(
            self.weight_words <= _WORDS["weight"],
            "weight_bytes",
            f"at most {_WORDS['weight']} words of {self.weight_word_bytes} bytes",
            self.memory.weight_bytes,
        )
        check(
            1 <= self.parameter_words <= _WORDS["parameter"],
            "parameter_bytes",
            f"between 1 and {_WORDS['parameter']} words of {self.parameter_word_bytes} bytes",
            self.memory.parameter_bytes,
        )
        check(
            is_power_of_two(self.resident_commands) and 4 <= self.resident_commands <= RESIDENT_COMMANDS,
            "resident_commands",
            f"a power of two between 4 and {RESIDENT_COMMANDS}",
            self.resident_commands,
        )
        check(
            MAC in self.engines,
            "engines",
            "some with MAC among them",
            ", ".join(engine.name for engine in self.engines) or "none",
        )
        for own in self.engines.values():
            own.check(self)
        ports, on_chip = self.cluster.ports, self.arena.on_chip_bytes
        check(not on_chip or ports == 1, "on_chip_bytes", f"0 with {ports} AXI4 ports", on_chip)

    def size_bytes(self, memory: LocalMemory) -> int:
        """Bytes of one memory: a power of two, or 0 where there is none."""
        return memory.size_bytes(self)

    @property
    def cores(self) -> int:
        """The number of cores."""
        return self.cluster.cores

    @property
    def port_id_bits(self) -> int:
        """Bits of an identifier at a memory port: an arbiter puts the core in front of those of several cores."""
        return self.axi.ID_BITS + (self.cluster.core_bits if self.cluster.sharing > 1 else 0)

    @property
    def multipliers(self) -> int:
        """Multipliers of a core's array."""
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
    def parameter_word_bytes(self) -> int:
        """Bytes of one parameter word: those of a channel for each requantise lane."""
        return PARAMETER_BYTES * self.array.requant_lanes

    @property
    def parameter_words(self) -> int:
        """Words of the parameter memory."""
        return self.memory.parameter_bytes // self.parameter_word_bytes

    def to_json(self) -> str:
        """The configuration as canonical JSON: sorted keys, engines by name; ``cluster`` where there are several,
        ``arena`` where it is on the chip, and ``hands_over`` where it is so."""
        return json.dumps(records.to_plain(self), sort_keys=True)

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
        """32 bits that distinguish configurations; the hardware and every program carry them."""
        return int.from_bytes(hashlib.sha256(self.to_json().encode()).digest()[:4], "little")
