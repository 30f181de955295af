"""The mapped netlist of a design, the input of place and route, as Verilog for simulation."""

from __future__ import annotations

from .translate import NetlistError, netlist_verilog

__all__ = ["NetlistError", "netlist_verilog"]
