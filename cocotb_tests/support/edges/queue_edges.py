"""Limits of what queues look at: headers, programs and tokens."""

from __future__ import annotations

from collections.abc import Iterator

from cocotb_tests.support.edges.case import (
    END,
    LEAD,
    SYNC,
    Case,
    base_fields,
    compute_case,
    engine_fields,
)
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.isa import COMMAND_BITS, Opcode, fields_end
from lutterfly.golden.units import Queue


def headers(config: Config) -> Iterator[Case]:
    """Opcodes, and bits that belong to no field."""
    for queue in Queue:
        opcodes = isa.opcodes(queue, config.cores)
        for code in range(16):
            if code in opcodes:
                word = isa.FORMATS[Opcode(code)].encode(**base_fields(Opcode(code), config))
            else:
                word = bytes([code]) + bytes(isa.COMMAND_BYTES - 1)
            words = (*[SYNC] * LEAD, word, END)
            yield Case(f"{queue.unit.name} opcode {code}", code in opcodes, **{queue.value: words})
        for opcode in opcodes:
            fmt = isa.FORMATS[opcode]
            word = int.from_bytes(fmt.encode(**base_fields(opcode, config)), "little")
            end = max(entry.lsb + entry.width for entry in fmt.fields)
            reserved = fmt.field("reserved")
            # The last bit of a field is tried with its limits; here, those that belong to none.
            for bit in {reserved.lsb, reserved.lsb + reserved.width - 1, end, COMMAND_BITS - 1}:
                changed = (word | 1 << bit).to_bytes(isa.COMMAND_BYTES, "little")
                words = (*[SYNC] * LEAD, changed, END)
                yield Case(f"{queue.unit.name} {opcode.name} bit {bit}", False, **{queue.value: words})
    argument = isa.COMPUTE.field("argument")
    for engine in config.engines:
        word = int.from_bytes(engine.format.encode(**engine_fields(config, engine)[0]), "little")
        for bit in {fields_end(config.engines.fields(engine)), argument.width - 1}:
            changed = (word | 1 << argument.lsb + bit).to_bytes(isa.COMMAND_BYTES, "little")
            yield Case(f"{engine.name} argument bit {bit}", False, compute=(*[SYNC] * LEAD, changed, END))
    for code in range(16):
        fields, entries = engine_fields(config, code)
        yield compute_case(f"engine {code}", code in config.engines, entries, **fields)


def programs(config: Config) -> Iterator[Case]:
    """Ends of programs and of their rings, and tokens."""
    resident = config.resident_commands
    for queue in Queue:
        for count in (1, resident - 1, resident, resident + 1, 2 * resident, 2 * resident + 1):
            yield Case(f"{queue.unit.name} of {count} commands", True, **{queue.value: (*[SYNC] * (count - 1), END)})
            yield Case(f"{queue.unit.name} of {count} commands, none END", False, **{queue.value: (SYNC,) * count})
        for given, taken in ((255, 255), (255, 256), (256, 255)):
            giver = [isa.SYNC.encode(signal=min(255, given - at)) for at in range(0, given, 255)]
            words = {queue.peer.value: (*giver, END), queue.value: (isa.SYNC.encode(wait=taken), END)}
            yield Case(f"{queue.unit.name} takes {taken} of {given} tokens", given == taken, **words)
        most = (1 << 16) - 1
        yield Case(
            f"{queue.unit.name} takes {most} tokens",
            True,
            **{
                queue.peer.value: (*[isa.SYNC.encode(signal=255)] * (most // 255), END),
                queue.value: (isa.SYNC.encode(wait=most), END),
            },
        )
    yield Case("END gives tokens", True, dma=(isa.END.encode(signal=3),), compute=(isa.END.encode(wait=3),))
