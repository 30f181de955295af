"""AXI signatures: the pins (AXI4 and AXI4-Lite) and the leaner channels between the core's own masters and the guard.

Source: Arm IHI 0022 (AMBA AXI and ACE Protocol Specification), issue H, chapters A2, A3 and B1.
"""

from __future__ import annotations

import enum

from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...golden.config_parts import AxiConfig
from ..parts.fifo import push_signature

__all__ = [
    "BEATS_BITS",
    "INCREMENTING",
    "ReadSignature",
    "Response",
    "WriteSignature",
    "axi4_lite_signature",
    "axi4_signature",
    "read_beat_layout",
    "request_layout",
    "response_layout",
    "write_beat_layout",
]

#: Bits of "beats in a burst, minus one".
BEATS_BITS = (AxiConfig.BURST_BEATS - 1).bit_length()
#: AxBURST of every burst.
INCREMENTING = 1


class Response(enum.IntEnum):
    """RRESP and BRESP; bit 1 tells trouble from success."""

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
    cannot be held up, so that a master asks only for what it has room for."""

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
