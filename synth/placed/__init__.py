"""Passes over a placed netlist: estimates of path delays, and moves of badly placed registers."""
