"""What an AXI4 slave may expect of a master, checked in every cycle."""

from __future__ import annotations

import cocotb
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly

_PAYLOAD = {
    "aw": ("addr", "id", "len", "size", "burst"),
    "ar": ("addr", "id", "len", "size", "burst"),
    "w": ("data", "strb", "last"),
}


class AxiMonitor:
    """Watch the ports ``prefix`` + "awvalid" and so on, from now on: valid and payload stay until they are taken;
    bursts are whole incrementing ones of at most 16 beats within a page; WLAST stands where AWLEN says.

    Attributes
    ----------
    requests : dict of str to list of tuple
        Taken requests of "aw" and "ar" as (address, beats, identifier).
    strobes : list of int
        Of the taken write beats.
    most_outstanding : int
        Read bursts in flight at most.
    """

    def __init__(self, dut: HierarchyObject, prefix: str, *, data_bytes: int):
        self.requests: dict[str, list[tuple[int, int, int]]] = {"aw": [], "ar": []}
        self.strobes: list[int] = []
        self.most_outstanding = 0
        self._dut = dut
        self._prefix = prefix
        self._data_bytes = data_bytes
        self._beats = 0
        self._lengths: list[int] = []
        self._answered = 0
        cocotb.start_soon(self._watch())

    def _value(self, name: str) -> int:
        return int(getattr(self._dut, self._prefix + name).value)

    async def _watch(self) -> None:
        waiting: dict[str, dict[str, int] | None] = dict.fromkeys(_PAYLOAD)
        outstanding = 0
        while True:
            await FallingEdge(self._dut.clk)
            await ReadOnly()
            if self._dut.rst.value == 1:
                continue
            for channel, names in _PAYLOAD.items():
                if self._value(f"{channel}valid"):
                    payload = {name: self._value(channel + name) for name in names}
                    assert waiting[channel] in (None, payload), (
                        f"{channel} changed from {waiting[channel]} to {payload}"
                    )
                    taken = self._value(f"{channel}ready")
                    waiting[channel] = None if taken else payload
                    if taken:
                        self._take(channel, payload)
                        outstanding += channel == "ar"
                else:
                    assert waiting[channel] is None, f"{channel}valid fell before it was taken"
            self._answered += self._value("bvalid") & self._value("bready")
            outstanding -= self._value("rvalid") & self._value("rready") & self._value("rlast")
            self.most_outstanding = max(self.most_outstanding, outstanding)

    def _take(self, channel: str, payload: dict[str, int]) -> None:
        if channel == "w":
            self.strobes.append(payload["strb"])
            self._beats += 1
            if payload["last"]:
                self._lengths.append(self._beats)
                self._beats = 0
        else:
            beats = payload["len"] + 1
            size = 1 << payload["size"]
            assert size == self._data_bytes
            assert payload["burst"] == 1
            assert beats <= 16
            assert payload["addr"] % size == 0
            assert payload["addr"] % 4096 + beats * size <= 4096, f"{beats} beats at {payload['addr']:#x} cross a page"
            self.requests[channel].append((payload["addr"], beats, payload["id"]))

    @property
    def is_writing(self) -> bool:
        """Whether a write burst is offered, or not answered."""
        return bool(self._value("awvalid")) or self._answered != len(self.requests["aw"])

    def check_ended(self) -> None:
        """Every write burst has got its beats, with WLAST at the end of each."""
        assert [beats for _, beats, _ in self.requests["aw"]] == self._lengths
