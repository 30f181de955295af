"""One access at a time to the registers, on AXI4-Lite."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..bus.axi import Response, axi4_lite_signature

__all__ = ["RegisterPort"]


class RegisterPort(wiring.Component):
    """Read or write a register: a cycle from ``start`` to the bus, and one from the bus to ``done``.

    What is offered stays until it is taken. Every output is registered but for ``bready`` and ``rready``, which are
    always high.

    Parameters
    ----------
    address_bits : int

    Members
    -------
    start : In(1), write : In(1), address : In(address_bits), data : In(32)
        Begin an access; not before the last one is done.
    done : Out(1)
        High for one cycle at its end.
    okay : Out(1), value : Out(32)
        With ``done``: whether there is such a register. What is read stays until the next read.
    control : Out(axi4_lite_signature)
    """

    def __init__(self, address_bits: int):
        self.address_bits = address_bits
        super().__init__(
            {
                "start": In(1),
                "write": In(1),
                "address": In(address_bits),
                "data": In(32),
                "done": Out(1),
                "okay": Out(1),
                "value": Out(32),
                "control": Out(axi4_lite_signature(address_bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus = self.control
        address, word = Signal(self.address_bits, reset_less=True), Signal(32, reset_less=True)
        m.d.comb += [
            bus.awaddr.eq(address),
            bus.araddr.eq(address),
            bus.wdata.eq(word),
            bus.wstrb.eq(-1),
            bus.bready.eq(1),
            bus.rready.eq(1),
        ]
        for channel in ("aw", "w", "ar"):
            valid = getattr(bus, f"{channel}valid")
            with m.If(getattr(bus, f"{channel}ready")):
                m.d.sync += valid.eq(0)
            with m.If(self.start):
                m.d.sync += valid.eq(~self.write if channel == "ar" else self.write)
        with m.If(self.start):
            m.d.sync += [address.eq(self.address), word.eq(self.data)]
        m.d.sync += [
            self.done.eq(bus.bvalid | bus.rvalid),
            self.okay.eq((bus.rvalid & (bus.rresp == Response.OKAY)) | (bus.bvalid & (bus.bresp == Response.OKAY))),
        ]
        with m.If(bus.rvalid):
            m.d.sync += self.value.eq(bus.rdata)
        return m
