"""Passes over the mapped netlist, before place and route."""
