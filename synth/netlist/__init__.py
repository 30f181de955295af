"""The mapped netlist of a design, the input of place and route, as Verilog for simulation."""

from __future__ import annotations

from .ecp5 import ECP5
from .gowin import GW5A
from .translate import Library, NetlistError, netlist_verilog

__all__ = ["ECP5", "GW5A", "Library", "NetlistError", "netlist_verilog"]
