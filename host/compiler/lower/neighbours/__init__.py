"""Lowerings whose windows compute neighbouring pixels."""
