"""Which commands a queue refuses, and why."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa
from ...golden.config import Config
from ...golden.engines.engine import Engine
from ...golden.isa import Opcode, fields_end
from ...golden.units import ErrorCode
from ..parts.isa import view

__all__ = ["Legality"]


class Legality(wiring.Component):
    """Look at a command: its opcode, its engine, and the bits that must be zero.

    Parameters
    ----------
    config : Config
    opcodes : sequence of Opcode
        Which are legal here.

    Members
    -------
    command : In(COMMAND_BITS)
        Held for two cycles.
    legal : Out(1)
        It may begin. Registered, two cycles late.
    error : Out(ErrorCode)
        Why not. Registered, two cycles late.
    """

    def __init__(self, config: Config, opcodes: tuple[Opcode, ...]):
        self.config = config
        self.opcodes = opcodes
        super().__init__({"command": In(isa.COMMAND_BITS), "legal": Out(1), "error": Out(ErrorCode)})

    def elaborate(self, platform) -> Module:
        m = Module()
        header = view(isa.SYNC, self.command)
        sizes = {opcode: fields_end(isa.FORMATS[opcode].fields) for opcode in self.opcodes}
        # Each stretch between the ends of two formats is looked at once.
        ends = sorted(set(sizes.values()))
        stretches = {end: Signal(name=f"used_from_{end}", reset_less=True) for end in ends}
        for (end, used), stop in zip(stretches.items(), [*ends[1:], isa.COMMAND_BITS], strict=True):
            m.d.sync += used.eq(self.command[end:stop].any())

        # What engines leave unused of the argument.
        compute = view(isa.COMPUTE, self.command)
        unused_of = {
            end: Signal(name=f"argument_from_{end}", reset_less=True)
            for end in sorted({self._argument_end(own) for own in self.config.engines})
        }
        for end, unused in unused_of.items():
            m.d.sync += unused.eq(compute.argument[end:].any())

        is_legal, is_clean, has_engine, is_argument_clean = Signal(), Signal(), Signal(init=1), Signal(init=1)
        with m.Switch(header.opcode):
            for opcode, size in sizes.items():
                with m.Case(opcode):
                    unused = [stretch for end, stretch in stretches.items() if end >= size]
                    m.d.comb += [is_legal.eq(1), is_clean.eq(~Cat(unused).any() & (header.reserved == 0))]
                    if opcode is Opcode.COMPUTE:
                        m.d.comb += has_engine.eq(Cat(compute.engine == code for code in self.config.engines).any())
                        with m.Switch(compute.engine):
                            for own in self.config.engines:
                                with m.Case(own):
                                    m.d.comb += is_argument_clean.eq(~unused_of[self._argument_end(own)])
        refusal = Mux(has_engine, ErrorCode.ILLEGAL_FIELD, ErrorCode.ILLEGAL_ENGINE)
        m.d.sync += [
            self.error.eq(Mux(is_legal, refusal, ErrorCode.ILLEGAL_OPCODE)),
            self.legal.eq(is_legal & has_engine & is_clean & is_argument_clean),
        ]
        return m

    def _argument_end(self, engine: Engine) -> int:
        """The bit after the last one of the argument that an engine's commands use."""
        return fields_end(self.config.engines.fields(engine))
