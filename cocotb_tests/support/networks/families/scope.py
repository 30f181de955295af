"""How large networks are: in proportion to the accelerator that they are for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lutterfly.golden.config import Config


@dataclass(frozen=True)
class Scope:
    """Draws sizes for one accelerator."""

    config: Config
    rng: np.random.Generator

    def width(self) -> int:
        """Channels of a layer: about as many as the array has lanes, odd numbers too."""
        lanes = self.config.array.lanes
        return int(self.rng.choice([3, 4, 5, lanes // 2 + 1, lanes, lanes, lanes + 2, min(2 * lanes, 24)]))

    def side(self, *, large: float = 0.15) -> int:
        """Rows and columns of a map; with probability ``large`` one that fills much of the feature memory."""
        if self.rng.random() < large:
            return int(self.rng.choice([24, 30, 32, 40]))
        return int(self.rng.integers(4, 17))

    def holds(self, size_bytes: int) -> bool:
        """Whether the feature memory holds a tensor of this size as a whole, beside others."""
        return 2 * size_bytes <= self.config.memory.feature_bytes

    def depth(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def coin(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]
