"""Integer products: ConvInteger and MatMulInteger, whose sums of few values the host adds up from codes."""

from __future__ import annotations

import numpy as np

from .builder import Net
from .scope import Scope


def integer_products(net: Net, scope: Scope) -> None:
    """Quantised layers, and products of ternary weights after them."""
    if scope.coin():
        side = scope.depth(3, 10)
        x = net.conv(net.input(2, side, side), scope.one_of(2, 4, 5), 3, activation="relu")
        weights = scope.rng.integers(-1, 2, (scope.one_of(1, 3, 4), x.channels, *scope.one_of((1, 1), (3, 3))))
        net.integer_product("ConvInteger", x, weights.astype(np.int8))
    else:
        x = net.dense(net.input(scope.one_of(6, 20)), scope.one_of(4, 9, 16), activation="relu")
        weights = scope.rng.integers(-1, 2, (x.channels, scope.one_of(1, 3, 5)))
        net.integer_product("MatMulInteger", x, weights.astype(np.int8))
