"""Matrix products of two activations: a convolution whose weights are stored by another layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....golden.engines import MAC
from ...graph import MatrixProduct
from ..data.constant import Constant, Stored
from ..data.operation import Lowering
from ..steps.images import channel_parameters
from .convolution import ConvolutionOperation


class MatrixOperation(ConvolutionOperation):
    """A convolution with a kernel of 1x1; :mod:`..rewrite.matrices` has put the matrix in the order of its words."""

    @property
    def kernel(self) -> npt.NDArray[np.int8]:
        """Any of them may be there."""
        return np.ones((*self.layer.order.shape[:1], 1, 1, *self.layer.order.shape[1:]), np.int8)

    def _weights(self) -> Constant:
        """The words of all tiles, as the layer before it has written them."""
        sizes = (self.tile_steps * self.config.weight_word_bytes).tolist()
        return Constant(Stored(self.layer.inputs[1], 0, sum(sizes)), tuple(sizes))

    def _parameters(self) -> Constant:
        """One scale, and no bias."""
        bias, multiplier = np.zeros(self.outputs, np.int32), np.full(self.outputs, self.layer.multiplier)
        return channel_parameters(self.layer, bias, multiplier, self.tile_channels, self.config)


LOWERING = Lowering({MatrixProduct: MatrixOperation}, (MAC,), is_tile_inner=True)
