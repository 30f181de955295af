"""Kinds of layers that make one tensor of two, element by element."""
