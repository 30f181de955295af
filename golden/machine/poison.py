"""Poison: what nobody may rely on has other bytes than before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def poison(image: npt.NDArray[np.uint8], where: npt.NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Change every byte of ``image`` that the mask selects, in place."""
    image[where] ^= rng.integers(1, 256, np.count_nonzero(where), dtype=np.uint8)
