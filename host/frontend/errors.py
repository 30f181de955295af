"""What the frontend raises."""
from __future__ import annotations


class ModelError(ValueError):
    """The model cannot run on the accelerator; the message names file, node or tensor, and the remedy."""
