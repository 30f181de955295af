"""AXI signatures: the pins (AXI4 and AXI4-Lite) and the leaner channels between the core's own masters and the guard.

Source: Arm IHI 0022 (AMBA AXI and ACE Protocol Specification), issue H, chapters A2, A3 and B1.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Flow, In, Out
from amaranth.utils import ceil_log2

from ...golden.config_parts import AxiConfig
from ..parts.fifo import Buffer, push_signature

__all__ = [
    "BEATS_BITS",
    "CONSTANTS",
    "INCREMENTING",
    "BurstSplitter",
    "Pin",
    "ReadSignature",
    "Response",
    "WriteSignature",
    "axi4_lite_signature",
    "axi4_signature",
    "bus_pins",
    "constant_pins",
    "read_beat_layout",
    "request_layout",
    "response_layout",
    "trace_pins",
    "write_beat_layout",
]


#: Bits of the field "beats minus one".
BEATS_BITS = (AxiConfig.BURST_BEATS - 1).bit_length()
#: AxBURST of every burst.
INCREMENTING = 1


class Response(enum.IntEnum):
    """RRESP and BRESP; bit 1 marks an error."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


def request_layout() -> data.StructLayout:
    """A burst: the address of its first beat, relative to EXTERNAL_BASE, and its beats minus one."""
    return data.StructLayout({"address": unsigned(AxiConfig.ADDRESS_BITS), "beats_minus_one": unsigned(BEATS_BITS)})


def read_beat_layout(data_bits: int) -> data.StructLayout:
    """One beat of read data with its response; ``last`` closes the burst."""
    return data.StructLayout({"data": unsigned(data_bits), "response": unsigned(2), "last": unsigned(1)})


def write_beat_layout(data_bits: int) -> data.StructLayout:
    """One beat of write data; the guard knows the lengths of the bursts and adds WLAST."""
    return data.StructLayout({"data": unsigned(data_bits), "strobe": unsigned(data_bits // 8)})


def response_layout() -> data.StructLayout:
    """The answer to one write burst."""
    return data.StructLayout({"response": unsigned(2)})


class _MasterSignature(wiring.Signature):
    """The channels of one of the core's own masters, on a bus of ``data_bits``. Bursts are answered in order; answers
    cannot be held up, so a master requests no more than it has room for."""

    def __init__(self, data_bits: int):
        self.data_bits = data_bits
        super().__init__(self._channels(data_bits))


class ReadSignature(_MasterSignature):
    """The read channels of one of the core's own masters.

    Members
    -------
    ar : Out(stream of request_layout)
    r : In(push_signature of read_beat_layout)
    """

    @staticmethod
    def _channels(data_bits: int) -> dict[str, wiring.Member]:
        return {
            "ar": Out(stream.Signature(request_layout())),
            "r": In(push_signature(read_beat_layout(data_bits))),
        }


class WriteSignature(_MasterSignature):
    """The write channels of one of the core's own masters: beats follow in the order of the bursts.

    Members
    -------
    aw : Out(stream of request_layout)
    w : Out(stream of write_beat_layout)
    b : In(push_signature of response_layout)
    """

    @staticmethod
    def _channels(data_bits: int) -> dict[str, wiring.Member]:
        return {
            "aw": Out(stream.Signature(request_layout())),
            "w": Out(stream.Signature(write_beat_layout(data_bits))),
            "b": In(push_signature(response_layout())),
        }


def axi4_signature(data_bits: int, id_bits: int = AxiConfig.ID_BITS) -> wiring.Signature:
    """AXI4 as a master drives it; as member ``memory`` its ports are called ``memory__awid`` and so on."""
    address = {"addr": AxiConfig.ADDRESS_BITS, "id": id_bits, "len": 8, "size": 3, "burst": 2, "valid": 1}
    members = {}
    for channel in ("aw", "ar"):
        members |= {f"{channel}{name}": Out(width) for name, width in address.items()}
        members[f"{channel}ready"] = In(1)
    members |= {
        "wdata": Out(data_bits),
        "wstrb": Out(data_bits // 8),
        "wlast": Out(1),
        "wvalid": Out(1),
        "wready": In(1),
    }
    members |= {"bid": In(id_bits), "bresp": In(2), "bvalid": In(1), "bready": Out(1)}
    members |= {
        "rid": In(id_bits),
        "rdata": In(data_bits),
        "rresp": In(2),
        "rlast": In(1),
        "rvalid": In(1),
        "rready": Out(1),
    }
    return wiring.Signature(members)


def axi4_lite_signature(address_bits: int) -> wiring.Signature:
    """AXI4-Lite with 32 data bits as a master drives it; the core's registers have it with ``In``."""
    return wiring.Signature(
        {
            "awaddr": Out(address_bits),
            "awprot": Out(3),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            "araddr": Out(address_bits),
            "arprot": Out(3),
            "arvalid": Out(1),
            "arready": In(1),
            "rdata": In(32),
            "rresp": In(2),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


# Runs of bytes into AXI bursts.


class BurstSplitter(wiring.Component):
    """Split runs of bytes into bursts, one each cycle, and a cycle for each run.

    Bursts end where the address is a multiple of a whole burst (16 beats). That divides 4096, so none crosses a page,
    and all but the first and the last of a run are whole. No combinational path.

    Parameters
    ----------
    data_bytes : int
        Bytes of a beat.
    context : ShapeLike
        The shape of data that accompanies a run and is passed on to its bursts.

    Members
    -------
    runs : In(stream)
        ``address`` of the first byte; ``last_byte``: bytes minus one; ``context``.
    bursts : Out(stream)
        ``address``, a multiple of ``data_bytes``; ``beats_minus_one``; ``first_byte`` of the first beat and
        ``last_byte`` of the last one that belong to the run; ``first`` and ``last`` burst of the run; ``context``.
    """

    def __init__(self, *, data_bytes: int, context: ShapeLike):
        self.data_bytes = data_bytes
        self.context = context
        byte = unsigned(ceil_log2(data_bytes))
        super().__init__(
            {
                "runs": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "address": unsigned(AxiConfig.ADDRESS_BITS),
                                "last_byte": unsigned(AxiConfig.ADDRESS_BITS),
                                "context": context,
                            }
                        )
                    )
                ),
                "bursts": Out(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "address": unsigned(AxiConfig.ADDRESS_BITS),
                                "beats_minus_one": unsigned(BEATS_BITS),
                                "first_byte": byte,
                                "last_byte": byte,
                                "first": unsigned(1),
                                "last": unsigned(1),
                                "context": context,
                            }
                        )
                    )
                ),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        byte_bits = ceil_log2(self.data_bytes)
        block_bits = byte_bits + BEATS_BITS
        m.submodules.found = found = Buffer(self.bursts.payload.shape())
        wiring.connect(m, found.output, wiring.flipped(self.bursts))
        run, burst, valid = self.runs.payload, found.input.payload, Signal()

        block = Signal(AxiConfig.ADDRESS_BITS - block_bits, reset_less=True)
        start = Signal(block_bits, reset_less=True)
        # The bytes from the beginning of the current block to the last one of the run: the rest, without a subtraction
        # of lengths.
        span = Signal(AxiConfig.ADDRESS_BITS + 1, reset_less=True)
        blocks_left = span[block_bits:]
        first = Signal(reset_less=True)
        last = Signal(reset_less=True)
        context = Signal(self.context, reset_less=True)
        first_start = Signal(block_bits)
        m.d.comb += [
            first_start.eq(Mux(first, start, 0)),
            burst.address.eq(Cat(Const(0, byte_bits), first_start[byte_bits:], block)),
            burst.beats_minus_one.eq(
                Mux(last, span[byte_bits:block_bits], (1 << BEATS_BITS) - 1) - first_start[byte_bits:]
            ),
            burst.first_byte.eq(first_start),
            burst.last_byte.eq(Mux(last, span, self.data_bytes - 1)),
            burst.first.eq(first),
            burst.last.eq(last),
            burst.context.eq(context),
            # No run is taken in the cycle of the last burst: that would couple the sender of runs to the taker of
            # bursts.
            self.runs.ready.eq(~valid),
            found.input.valid.eq(valid),
        ]
        with m.If(found.input.ready & valid):
            m.d.sync += [valid.eq(~last), first.eq(0), block.eq(block + 1)]
            m.d.sync += [blocks_left.eq(blocks_left - 1), last.eq(blocks_left == 1)]
        # Whether the first block is the last one is computed in parallel with the long addition instead of after it.
        end_in_block = Signal(block_bits + 1)
        m.d.comb += end_in_block.eq(run.address[:block_bits] + run.last_byte[:block_bits])
        with m.If(self.runs.ready & self.runs.valid):
            m.d.sync += [
                last.eq(~run.last_byte[block_bits:].any() & ~end_in_block[-1]),
                valid.eq(1),
                first.eq(1),
                Cat(start, block).eq(run.address),
                span.eq(run.address[:block_bits] + run.last_byte),
                context.eq(run.context),
            ]
        return m


# Pins by the names that integrators' tools expect: ``s_axi_awaddr``, ``m_axi_araddr``; direction, width, meaning.
#
# Source: Arm IHI 0022 (AMBA AXI and ACE Protocol Specification), issue H, chapters A2, A4 and B1. Vivado, LiteX and
# cocotbext-axi find an interface by the prefix of such names.

#: Constant outputs of a master's address channels: (bits, value). LOCK: no exclusive access (A7.4); CACHE: normal,
#: non-cacheable, bufferable memory (A4.4), which interconnects pass on unchanged; PROT: unprivileged, secure, data
#: (A4.7); QOS: no scheme (A8.1). REGION is for slaves with several regions, and left out.
CONSTANTS = {"lock": (1, 0b0), "cache": (4, 0b0011), "prot": (3, 0b000), "qos": (4, 0b0000)}

_CHANNELS = {"aw": "write address", "w": "write data", "b": "write response", "ar": "read address", "r": "read data"}
_SIGNALS = {
    "addr": "in bytes",
    "burst": "kind of the burst",
    "cache": "memory attributes",
    "data": "data",
    "id": "identifier",
    "last": "last beat of a burst",
    "len": "beats of the burst minus one",
    "lock": "exclusive access",
    "prot": "protection",
    "qos": "quality of service",
    "ready": "ready",
    "resp": "response",
    "size": "logarithm of the bytes in a beat",
    "strb": "bytes that are written",
    "valid": "valid",
}
_SIGNAL = re.compile(rf"({'|'.join(sorted(_CHANNELS, key=len, reverse=True))})({'|'.join(_SIGNALS)})")


@dataclass(frozen=True)
class Pin:
    """A pin of a top level.

    Attributes
    ----------
    name : str
    flow : Flow
    width : int
    meaning : str
    value : Value
        The value inside that an output shows, or that an input drives.
    """

    name: str
    flow: Flow
    width: int
    meaning: str
    value: Value

    @property
    def direction(self) -> str:
        """The direction in Verilog."""
        return "output" if self.flow is Flow.Out else "input"


def bus_pins(prefix: str, component: wiring.Component, name: str, ignored: tuple[str, ...] = ()) -> list[Pin]:
    """Return the pins of a component's AXI bus, its member ``name``; ``ignored`` are kinds of inputs without use."""
    pins = []
    for member, flow, signal in _signals(component, name):
        found = _SIGNAL.fullmatch(member)
        assert found, member
        channel, kind = found.groups()
        said = "ignored" if kind in ignored else _SIGNALS[kind]
        pins.append(Pin(f"{prefix}_{member}", flow, len(signal), f"{_CHANNELS[channel]}: {said}", signal))
    return pins


def trace_pins(name: str, component: wiring.Component) -> list[Pin]:
    """Return the pins of a component's trace, its member ``name``."""
    return [
        Pin(f"{name}_{member}", flow, len(signal), "for a simulator", signal)
        for member, flow, signal in _signals(component, name)
    ]


def _signals(component: wiring.Component, name: str) -> Iterator[tuple[str, Flow, Signal]]:
    """Return the signals of an interface of one level: name, direction as the component sees it, and the signal."""
    interface = getattr(component, name)
    for member, shape in component.signature.members[name].signature.members.items():
        yield member, shape.flow, getattr(interface, member)


def constant_pins(prefix: str) -> list[Pin]:
    """Return the pins of a master's ``CONSTANTS``."""
    return [
        Pin(
            f"{prefix}_{channel}{kind}",
            Flow.Out,
            bits,
            f"{_CHANNELS[channel]}: {_SIGNALS[kind]}, always {value:0{bits}b}",
            Const(value, bits),
        )
        for channel in ("aw", "ar")
        for kind, (bits, value) in CONSTANTS.items()
    ]
