"""Pins as integrators' tools know them: ``s_axi_awaddr``, ``m_axi_araddr``, one underscore, direction, width, meaning.

Source: Arm IHI 0022 (AMBA AXI and ACE Protocol Specification), issue H, chapters A2, A4 and B1. Vivado, LiteX and
cocotbext-axi find an interface by the prefix of such names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from amaranth.hdl import Const, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow

__all__ = ["CONSTANTS", "Pin", "bus_pins", "constant_pins", "trace_pins"]

#: What a master says with every address, where nothing but the place changes: (bits, value). LOCK: no exclusive access
#: (A7.4); CACHE: normal, non-cacheable, bufferable memory (A4.4), which interconnects pass on unchanged; PROT:
#: unprivileged, secure, data (A4.7); QOS: no scheme takes part (A8.1). REGION is for slaves with several, and left out.
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
        Inside: what an output has, or what an input drives.
    """

    name: str
    flow: Flow
    width: int
    meaning: str
    value: Value

    @property
    def direction(self) -> str:
        """As Verilog says it."""
        return "output" if self.flow is Flow.Out else "input"


def bus_pins(prefix: str, component: wiring.Component, name: str, ignored: tuple[str, ...] = ()) -> list[Pin]:
    """The pins of a component's AXI bus, its member ``name``; ``ignored`` are kinds of inputs without use."""
    pins = []
    for member, flow, signal in _signals(component, name):
        found = _SIGNAL.fullmatch(member)
        assert found, member
        channel, kind = found.groups()
        said = "ignored" if kind in ignored else _SIGNALS[kind]
        pins.append(Pin(f"{prefix}_{member}", flow, len(signal), f"{_CHANNELS[channel]}: {said}", signal))
    return pins


def trace_pins(name: str, component: wiring.Component) -> list[Pin]:
    """The pins of a component's trace, which is its member ``name``."""
    return [
        Pin(f"{name}_{member}", flow, len(signal), "for a simulator", signal)
        for member, flow, signal in _signals(component, name)
    ]


def _signals(component: wiring.Component, name: str) -> Iterator[tuple[str, Flow, Signal]]:
    """The signals of an interface of one level: name, direction as the component sees it, and the signal."""
    interface = getattr(component, name)
    for member, shape in component.signature.members[name].signature.members.items():
        yield member, shape.flow, getattr(interface, member)


def constant_pins(prefix: str) -> list[Pin]:
    """The pins of a master's ``CONSTANTS``."""
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
