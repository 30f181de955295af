"""What the compiler raises."""

from __future__ import annotations


class CompileError(ValueError):
    """A network that this configuration cannot run; the message names the place and the remedy."""
