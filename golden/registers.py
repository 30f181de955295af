"""The register map: the one definition that hardware, driver and docs share.

Registers are 32 bits wide, on AXI4-Lite; addresses are in bytes. With several cores, some registers are there once for
each of them: those of core i lie ``CORE_BYTES * i`` above those of core 0.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

from .isa import place_fields

#: Value of the ID register: "LUTF" in ASCII, first letter lowest.
ID = int.from_bytes(b"LUTF", "little")
#: Version of the contract: instruction set and registers. A driver refuses another one.
VERSION = 1

#: CONTROL bits.
CONTROL_START = 1 << 0
CONTROL_RESET = 1 << 1

#: STATUS bits.
STATUS_BUSY = 1 << 0
STATUS_DONE = 1 << 1
STATUS_ERROR = 1 << 2
STATUS_RESETTING = 1 << 3

#: Fields of the register ERROR.
ERROR_FIELDS = place_fields(
    ("code", 8, "error code"), ("unit", 8, "unit"), ("index", 16, "index of the command in its queue, modulo 65,536")
)

WATCHDOG_DEFAULT = 65_536


def error_fields(word: int) -> dict[str, int]:
    """The fields of the register ERROR."""
    return {field.name: word >> field.lsb & field.limits[1] for field in ERROR_FIELDS}


class Access(enum.Enum):
    """The access that software has to a register."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read, write"


@dataclass(frozen=True, slots=True)
class Register:
    """One 32-bit register; the bits outside ``mask`` do not exist and read zero.

    ``core`` is the core to which it belongs; None for a register of the whole accelerator.
    """

    name: str
    address: int
    access: Access
    doc: str
    reset: int = 0
    mask: int = 0xFFFF_FFFF
    core: int | None = None


def _map(
    *specs: tuple[str, Access, str, *tuple[int, ...]], first: int = 0, of_cores: tuple[str, ...] = ()
) -> dict[str, Register]:
    registers = {}
    for index, (name, access, doc, *rest) in enumerate(specs, first):
        registers[name] = Register(name, 4 * index, access, doc, *rest)
        if name in of_cores:
            registers[name] = dataclasses.replace(registers[name], core=0)
    return registers


def core_name(name: str, core: int) -> str:
    """Return the name of a core's register where there are several cores."""
    return name if core == 0 else f"{name}_{core}"


def register_map(cores: int) -> dict[str, Register]:
    """Return all registers of an accelerator of so many cores, by name: those of one core, and those added for
    several."""
    if cores == 1:
        return REGISTERS
    first = REGISTERS | CLUSTER_REGISTERS
    others = [
        dataclasses.replace(
            register, name=core_name(register.name, core), address=register.address + CORE_BYTES * core, core=core
        )
        for core in range(1, cores)
        for register in first.values()
        if register.core == 0
    ]
    return first | {register.name: register for register in others}


def address_bits(cores: int) -> int:
    """Return the bits of a register address in an accelerator of so many cores."""
    return max(ADDRESS_BITS, (cores * CORE_BYTES - 1).bit_length())


#: Bytes from a core's registers to those of the next.
CORE_BYTES = 128
#: Bits of a register address within one core.
ADDRESS_BITS = 8

_OF_CORES = (
    "DMA_PROGRAM",
    "DMA_COMMANDS",
    "COMPUTE_PROGRAM",
    "COMPUTE_COMMANDS",
    "ERROR",
    "ERROR_ADDRESS",
    "CYCLES",
    "DMA_BUSY",
    "DMA_STALLED",
    "COMPUTE_BUSY",
    "COMPUTE_STALLED",
    "DMA_DONE",
    "COMPUTE_DONE",
    "BARRIER_STALLED",
)
_R, _W, _RW = Access.READ, Access.WRITE, Access.READ_WRITE
_FLAG, _COMMAND, _COUNT = 1, 0xFFFF_FFC0, 0x00FF_FFFF

REGISTERS: dict[str, Register] = _map(
    ("ID", _R, f"{ID:#010x}: this is a Lutterfly."),
    ("VERSION", _R, "Version of instruction set and registers."),
    ("CONFIG_HASH", _R, "Hash of the configuration that the hardware was generated from."),
    (
        "CONTROL",
        _W,
        ("Bit 0: start a run (ignored while busy, in error or in reset). Bit 1: soft reset. Both clear themselves."),
    ),
    (
        "STATUS",
        _R,
        (
            "Bit 0: busy. Bit 1: the last run is done. Bit 2: the last run stopped with an error. "
            "Bit 3: a reset is in progress."
        ),
    ),
    (
        "INTERRUPT",
        _RW,
        "Reads 1 while an interrupt is pending (a run is done, or stopped); writing 1 clears it.",
        0,
        _FLAG,
    ),
    ("INTERRUPT_ENABLE", _RW, "Bit 0: drive the interrupt line while an interrupt is pending.", 0, _FLAG),
    (
        "EXTERNAL_BASE",
        _RW,
        (
            "Added to every external address; a multiple of 4096. Writing this register or one of the four below makes "
            "the next run fetch its commands again, even if they are the same; so does a soft reset."
        ),
        0,
        0xFFFF_F000,
    ),
    (
        "DMA_PROGRAM",
        _RW,
        "Address of the DMA queue's first command, relative to EXTERNAL_BASE; a multiple of 64.",
        0,
        _COMMAND,
    ),
    ("DMA_COMMANDS", _RW, "Commands of the DMA queue, END included.", 0, _COUNT),
    (
        "COMPUTE_PROGRAM",
        _RW,
        "Address of the compute queue's first command, relative to EXTERNAL_BASE; a multiple of 64.",
        0,
        _COMMAND,
    ),
    ("COMPUTE_COMMANDS", _RW, "Commands of the compute queue, END included.", 0, _COUNT),
    ("WATCHDOG", _RW, "Cycles without progress after which a run stops; 0 turns the watchdog off.", WATCHDOG_DEFAULT),
    (
        "ERROR",
        _R,
        "; ".join(f"bits {field.lsb + field.width - 1}:{field.lsb}: {field.doc}" for field in ERROR_FIELDS).capitalize()
        + ".",
    ),
    ("ERROR_ADDRESS", _R, "The address out of range, or the external address of the failed burst, where there is one."),
    ("CYCLES", _R, "Cycles of the last run, from start to done."),
    ("DMA_BUSY", _R, "Cycles in which a DMA command was in progress."),
    ("DMA_STALLED", _R, "Cycles in which the DMA queue waited for tokens."),
    ("COMPUTE_BUSY", _R, "Cycles in which a step was issued."),
    (
        "COMPUTE_STALLED",
        _R,
        "Cycles in which the compute queue waited for tokens, for earlier results, or for the requantiser.",
    ),
    ("DMA_DONE", _R, "Commands of the DMA queue completed in this run, SYNC and END included."),
    ("COMPUTE_DONE", _R, "Commands of the compute queue completed in this run, SYNC and END included."),
    of_cores=_OF_CORES,
)
#: The registers that accelerators with several cores have in addition.
CLUSTER_REGISTERS: dict[str, Register] = _map(
    ("CORES", _R, "How many cores there are."),
    ("ERROR_CORE", _R, "The core whose error stopped the run: its ERROR tells why. That of the others is STOPPED."),
    ("BARRIER_STALLED", _R, "Cycles in which the core waited at barriers."),
    first=len(REGISTERS),
    of_cores=_OF_CORES,
)
