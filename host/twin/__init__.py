"""The twin of a board: its top with the serial pins, simulated, behind a pseudo-terminal."""

from __future__ import annotations

from .twin import Twin

__all__ = ["Twin"]
