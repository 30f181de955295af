"""The signatures of the buses: what is at the pins has the widths that the standard gives it."""

from __future__ import annotations

import pytest

from lutterfly.golden.config_parts import AxiConfig
from lutterfly.hdl.bus.axi import axi4_signature

#: Arm IHI 0022, chapter A2, for the signals that are there; data and strobes aside.
WIDTHS = {"len": 8, "size": 3, "burst": 2, "resp": 2, "last": 1, "valid": 1, "ready": 1}


@pytest.mark.parametrize("data_bits", [32, 64, 128])
def test_widths_are_those_of_the_standard(data_bits: int) -> None:
    widths = {name: member.shape for name, member in axi4_signature(data_bits).members.items()}
    for channel in ("ar", "aw", "r", "w", "b"):
        for signal, width in WIDTHS.items():
            if channel + signal in widths:
                assert widths[channel + signal] == width, channel + signal
    addresses = {"ar", "aw"}
    for channel in addresses:
        assert {channel + signal for signal in ("len", "size", "burst", "valid", "ready")} <= set(widths)
        assert widths[channel + "addr"] == AxiConfig.ADDRESS_BITS
    assert widths["rdata"] == widths["wdata"] == data_bits
    assert widths["wstrb"] == data_bits // 8
    assert widths["rid"] == widths["bid"] == widths["arid"] == widths["awid"] == AxiConfig.ID_BITS


def test_identifiers_alone_are_wider_behind_an_arbiter() -> None:
    narrow, wide = axi4_signature(64).members, axi4_signature(64, id_bits=7).members
    assert {name for name in wide if wide[name] != narrow[name]} == {"arid", "awid", "rid", "bid"}
    assert {wide[name].shape for name in ("arid", "awid", "rid", "bid")} == {7}
