"""Passes over the mapped netlist, in front of place and route."""
