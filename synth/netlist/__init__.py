"""The mapped netlist of a design, as Verilog that simulates: what goes to place and route, cell by cell."""

from __future__ import annotations

from .cells import NetlistError
from .translate import netlist_verilog

__all__ = ["NetlistError", "netlist_verilog"]
