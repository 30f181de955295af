"""The mapped netlist of a design, as Verilog that simulates: what goes to place and route, cell by cell."""

from __future__ import annotations

from .translate import NetlistError, netlist_verilog

__all__ = ["NetlistError", "netlist_verilog"]
