"""Writes mixed networks with products, differences and extremes of two activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cocotb_tests.support.networks.families.net_file import Codes

from .arranged import ArrangedNet


class MultipliedNet(ArrangedNet):
    """As :class:`ArrangedNet`, with products of maps, and of a map and a vector over its channels; Sub, Max and Min."""

    extra_kinds: ClassVar[Mapping[str, int]] = {
        **ArrangedNet.extra_kinds,
        "product": 6,
        "excite": 6,
        "difference": 3,
        "extreme": 3,
    }

    def multiply(self, a: Codes, b: Codes, *, activation: str = "") -> Codes:
        return super().multiply(self._between(a), self._between(b), activation=activation)
