"""The wrapper that makes generated Verilog simulate fast; what it does to cycles, the simulator's tests show."""

from __future__ import annotations

import pytest

from lutterfly.host.simulation.rewriting import wrap
from lutterfly.host.simulation.toolchain import ToolError

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
