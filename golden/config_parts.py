"""The parts of a configuration that every accelerator has: array, memories, port, cores. Standard library only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .records import check, check_integers, is_power_of_two
from .units import MOST_CORES


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """The multiplier array and the requantiser after it.

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
        check_integers(self, *(field.name for field in dataclasses.fields(self)))
        for name in ("lanes", "columns", "requant_lanes"):
            value = getattr(self, name)
            check(is_power_of_two(value), name, "a power of two", value)
        check(4 <= self.lanes <= 64, "lanes", "between 4 and 64", self.lanes)
        check(self.columns <= self.lanes, "columns", f"at most lanes ({self.lanes})", self.columns)
        check(
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
        check_integers(self, *(field.name for field in dataclasses.fields(self)))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check(is_power_of_two(value), field.name, "a power of two", value)
        check(self.feature_bytes <= 1 << 24, "feature_bytes", "at most 16777216", self.feature_bytes)
        check(self.weight_bytes <= 1 << 24, "weight_bytes", "at most 16777216", self.weight_bytes)
        check(self.parameter_bytes <= 1 << 24, "parameter_bytes", "at most 16777216", self.parameter_bytes)
        check(self.tables <= 256, "tables", "at most 256", self.tables)
        check(self.list_entries <= 4096, "list_entries", "at most 4096", self.list_entries)


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
        check_integers(self, "data_bits", "outstanding")
        check(self.data_bits in (32, 64, 128), "data_bits", "32, 64 or 128", self.data_bits)
        check(self.outstanding in range(1, 17), "outstanding", "between 1 and 16", self.outstanding)

    @property
    def data_bytes(self) -> int:
        """Bytes in a beat."""
        return self.data_bits // 8


@dataclass(frozen=True, slots=True)
class ArenaConfig:
    """The memory that driver and accelerator share.

    Attributes
    ----------
    on_chip_bytes : int
        Bytes of it on the chip, a power of two; 0 where it is external memory, of whatever size the driver says.
    """

    on_chip_bytes: int = 0

    #: EXTERNAL_BASE is a multiple of a page.
    PAGE_BYTES = 4096

    def __post_init__(self) -> None:
        check_integers(self, "on_chip_bytes")
        size = self.on_chip_bytes
        check(
            size == 0 or (is_power_of_two(size) and self.PAGE_BYTES <= size <= 1 << 24),
            "on_chip_bytes",
            f"0, or a power of two between {self.PAGE_BYTES} and {1 << 24}",
            size,
        )


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The cores of an accelerator, all of them alike.

    Attributes
    ----------
    cores : int
        The number of cores: 1, 2, 4 or 8.
    shared_port : bool
        Whether all share one AXI4 port, through an arbiter; else each has its own.
    """

    cores: int = 1
    shared_port: bool = True

    def __post_init__(self) -> None:
        check_integers(self, "cores")
        check(self.cores in (1, 2, 4, MOST_CORES), "cores", f"1, 2, 4 or {MOST_CORES}", self.cores)
        check(self.cores > 1 or self.shared_port, "shared_port", "true for one core", str(self.shared_port).lower())

    @property
    def ports(self) -> int:
        """AXI4 ports of the accelerator."""
        return 1 if self.shared_port else self.cores

    @property
    def sharing(self) -> int:
        """Cores that share a port."""
        return self.cores // self.ports

    @property
    def core_bits(self) -> int:
        """Bits of a core's number."""
        return (self.cores - 1).bit_length()
