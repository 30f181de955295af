"""A board's mapped netlist with its pins: what place and route gets, not the Verilog from which it was mapped."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...golden.config import Config
from ...golden.pins import MODULE
from ...synth.netlist import netlist_verilog
from ..files.progress import Progress, silent
from ..simulation.build import library_of
from .pins import Pins, board_top

_NETLIST = "netlist"
#: The harness's reset is left open: a board has none, and comes out of it by itself when its PLL has locked.
_TOP = f"""
module {MODULE}(clk, rst, rx, tx, busy);
  input clk;
  input rst;
  input rx;
  output tx;
  output busy;
  {_NETLIST} board(.clock(clk), .rx(rx), .tx(tx), .busy(busy));
endmodule
"""


def netlist_pins(
    netlist: Mapping[str, Any],
    config: Config,
    clock_hz: int,
    *,
    cache_root: Path | None = None,
    progress: Progress = silent,
) -> Pins:
    """Build the simulator of a netlist, unless it is in the cache.

    Parameters
    ----------
    netlist : mapping
        Of a board's top, see :func:`~lutterfly.synth.netlist.netlist_verilog`; its light is not inverted.
    config : Config
        What the board holds.
    clock_hz : int
        Of the accelerator there.

    Raises
    ------
    NetlistError
        If there is a cell that no model describes.
    ToolError
        If it cannot be built.
    """
    text = netlist_verilog(netlist, name=_NETLIST) + _TOP
    cells = netlist["modules"]["top"]["cells"].values()
    # As the model of a PLL with a faster clock has it.
    edges = 1 + any("CLKOS2_ENABLE" in cell["parameters"] for cell in cells if cell["type"] == "EHXPLLL")
    top = dataclasses.replace(board_top(clock_hz, edges=edges), is_rewritten=False)
    return Pins(library_of(text, config, top=top, root=cache_root, progress=progress), clock_hz)
