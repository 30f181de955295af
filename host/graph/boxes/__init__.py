"""Boxes of elements that are copied at once: see :mod:`.pieces`."""
