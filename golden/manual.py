"""The manual's tables: ``docs/isa.md`` and ``docs/registers.md``, generated from the contract.

``python -m lutterfly.golden.manual`` writes them; a test fails where a file differs from the contract.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import isa, registers
from .engines import SPECIFICATIONS
from .engines.engine import Engine
from .isa import Field
from .memories import OWN_MEMORY, SHARED_MEMORIES, LocalMemory
from .units import MOST_CORES, ErrorCode, Queue, Unit

_FIELD_HEAD = ("Bits", "Field", "", "Meaning")

_QUEUES = {
    opcode: " and ".join(queue.title for queue in Queue if opcode in isa.opcodes(queue, MOST_CORES))
    for opcode in isa.Opcode
}

_ISA_HEAD = f"""\
# Instruction set

Generated from `golden/isa.py` and `golden/engines/` by `python -m lutterfly.golden.manual`; do not edit.

A command has {isa.COMMAND_BYTES} bytes, little-endian. Two queues execute commands in order, each at its own pace, and
synchronise through tokens: a command takes `wait` tokens that the other queue has given before it begins, and gives
`signal` tokens when it completes. Commands complete in order. Bits that no field covers are zero; another value there,
or in `reserved`, is an illegal field. A number that is signed is in two's complement.
"""

_REGISTERS_HEAD = f"""\
# Registers

Generated from `golden/registers.py` by `python -m lutterfly.golden.manual`; do not edit.

Registers are 32 bits wide, on AXI4-Lite; addresses are in bytes, in a window of
{1 << registers.ADDRESS_BITS} bytes, or of {registers.CORE_BYTES} for each core if that is more.
Write strobes are honoured. Bits outside the mask do not exist: they read zero. An access that the table does not allow,
or to an address that is not in it, is answered with SLVERR (and reads zero).
"""

_CLUSTER = f"""\
## Several cores

With several cores these are there once for each:
{", ".join(f"`{name}`" for name, register in registers.REGISTERS.items() if register.core == 0)}.
Those of core i lie {registers.CORE_BYTES:#x} * i above those of core 0.
One write of CONTROL starts all cores. STATUS and INTERRUPT are those of all: a run is done when every core is, and an
error of one core stops all of them. There is more:
"""

_RUN = """\
## A run

1. After a reset of the pins, wait until STATUS bit 3 is zero; it takes as long as a soft reset.
2. Write EXTERNAL_BASE and the program registers. If they have not been written since the last run, and all commands of
   a queue fit into the program memory, they run from there: do not change commands in external memory without writing
   the registers again.
3. Write CONTROL with bit 0. STATUS is busy until both queues have ended or an error stops the run; then an interrupt is
   pending.
4. After an error only a soft reset (CONTROL bit 1) helps. Wait until STATUS bit 3 is zero, then run the prologue again.
   The soft reset clears errors, counters and the pending interrupt; the registers that software writes keep their
   values. It ends when the memory has taken what was offered to it; reads that it has not answered do no harm, however
   late.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


def _bits(field: Field) -> str:
    return f"{field.lsb + field.width - 1}:{field.lsb}" if field.width > 1 else str(field.lsb)


def _codes(title: str, codes: Iterable[enum.IntEnum | LocalMemory]) -> str:
    return f"## {title}\n\n{_table(('Code', 'Name'), ((int(code), f'`{code.name}`') for code in codes))}"


def _fields(fields: Iterable[Field]) -> list[tuple[str, str, str, str]]:
    return [(_bits(field), f"`{field.name}`", "signed" if field.signed else "", field.doc) for field in fields]


def _format(fmt: isa.Format) -> str:
    opcode = [("3:0", "`opcode`", "", f"{int(fmt.opcode)}.")]
    return f"""\
## {fmt.opcode.name}

In queue: {_QUEUES[fmt.opcode]}.

### Format

{_table(_FIELD_HEAD, [*opcode, *_fields(fmt.fields)])}
### Action

```python
{fmt.action}
```

### Notes

{fmt.notes}
"""


def _engines() -> str:
    """Return the table of the engines: codes, limits and notes."""
    rows = (
        (
            int(engine.engine),
            f"`{engine.engine.name}`",
            f"`{engine.results}`",
            f"`{engine.issue.weight_words}`" if engine.issue.weight_words else "none",
        )
        for engine in SPECIFICATIONS.values()
    )
    head = ("Code", "Name", "Most results of a window", "Weight words of a tile")
    rooms = [f"### {engine.engine.name}\n\n{engine.notes}\n{_own(engine.engine)}" for engine in SPECIFICATIONS.values()]
    return "\n".join([f"## Engines\n\n{_table(head, rows)}", *rooms])


def _own(engine: Engine[Any]) -> str:
    """Return the table of the fields and the memory that only this engine has."""
    parts = []
    if engine.fields:
        parts.append(f"Its argument, by the argument's bits:\n\n{_table(_FIELD_HEAD, _fields(engine.fields))}")
    if engine.memory is not None:
        few, many = (engine.memory.write_bytes(lanes) for lanes in (4, 8))
        unit = few if few == many else "`lanes`"
        parts.append(f"Its memory: {int(engine.memory)}, `{engine.memory.name}`; a unit has {unit} bytes.\n")
    return "".join(f"\n{part}" for part in parts)


def isa_page() -> str:
    """The text of ``docs/isa.md``: every command as Format, Action and Notes, then engines and codes."""
    codes = (
        ("Local memories", SHARED_MEMORIES),
        ("Error codes", ErrorCode),
        ("Units", Unit),
    )
    step_list = (
        f"## Step lists\n\nAn entry has {isa.LIST_ENTRY_BYTES} bytes: a byte offset in bits {isa.LOCAL_BITS - 1}:0 "
        f"(modulo 2^{isa.LOCAL_BITS}), how many bytes of the word count in bits "
        f"{isa.LIST_COUNT_LSB + isa.LIST_COUNT_BITS - 1}:{isa.LIST_COUNT_LSB} (0 for all; read by engines of binary "
        f"values alone), the flag `clear` in bit {isa.LIST_CLEAR.bit_length() - 1}, the flag `fire` in bit "
        f"{isa.LIST_FIRE.bit_length() - 1}.\n"
    )
    tables = [_codes(*pair) for pair in codes]
    tables[0] += f"\nThe memory of an engine's own has the code {OWN_MEMORY} plus the engine's, see *Engines*.\n"
    parts = [_ISA_HEAD, *map(_format, isa.FORMATS.values()), step_list, _engines(), *tables]
    return "\n".join(parts)


def registers_page() -> str:
    """The text of ``docs/registers.md``: the register map, and how to run a program."""
    head = ("Address", "Name", "Access", "Reset", "Mask", "Meaning")
    tables = [
        _table(head, map(_register, found.values())) for found in (registers.REGISTERS, registers.CLUSTER_REGISTERS)
    ]
    return "\n".join((_REGISTERS_HEAD, tables[0], _CLUSTER, tables[1], _RUN))


def _register(register: registers.Register) -> tuple[str, ...]:
    return (
        f"{register.address:#04x}",
        f"`{register.name}`",
        register.access.value,
        f"{register.reset:#x}",
        f"`{register.mask:#010x}`" if register.mask != 0xFFFF_FFFF else "",
        register.doc,
    )


def pages() -> dict[str, str]:
    """The generated files of ``docs/``: name to text."""
    return {"isa.md": isa_page(), "registers.md": registers_page()}


def main() -> int:
    """Write the pages into the ``docs`` folder of the checkout."""
    folder = Path(__file__).parents[1] / "docs"
    if not folder.is_dir():
        print(f"docs must be a folder beside golden, and {folder} is not one; run this in a checkout", file=sys.stderr)
        return 2
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
