"""Writes mixed networks in which elements move to other pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from cocotb_tests.support.networks.families.net_file import Codes

from .wide import WideNet


class MovedNet(WideNet):
    """As :class:`WideNet`, with upsampling, depth to space and back, and crops, on codes or between float tensors."""

    extra_kinds: ClassVar[Mapping[str, int]] = {"nearest": 4, "depth": 4, "phases": 4, "space": 3, "crop": 3}

    def nearest(self, x: Codes, factors: tuple[int, int]) -> Codes:
        """Every pixel repeated, told by scales or by sizes."""
        shape = x.channels, x.shape[1] * factors[0], x.shape[2] * factors[1]
        scales = self._constant(np.array([1, 1, *factors], np.float32))
        modes = {"mode": "nearest"}
        if self.rng.integers(2):
            modes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if self.rng.integers(2):
            return self._on_codes("Resize", x, shape, "", scales, **modes)
        return self._on_codes("Resize", x, shape, "", "", self._constant(np.array([1, *shape], np.int64)), **modes)

    def depth_to_space(self, x: Codes, block: int) -> Codes:
        shape = x.channels // block**2, x.shape[1] * block, x.shape[2] * block
        mode = "DCR" if self.rng.integers(2) else "CRD"
        return self._on_codes("DepthToSpace", x, shape, blocksize=block, mode=mode)

    def space_to_depth(self, x: Codes, block: int) -> Codes:
        shape = x.channels * block**2, x.shape[1] // block, x.shape[2] // block
        return self._on_codes("SpaceToDepth", x, shape, blocksize=block)

    def crop(self, x: Codes, starts: tuple[int, int], ends: tuple[int, int]) -> Codes:
        """Rows and columns from ``starts`` to before ``ends``."""
        bounds = [self._constant(np.array(values, np.int64)) for values in (starts, ends, (2, 3))]
        shape = x.channels, *(end - start for start, end in zip(starts, ends, strict=True))
        return self._on_codes("Slice", replace(x), shape, *bounds)
