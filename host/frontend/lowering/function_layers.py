"""Lower functions of the model that are layers, each kind by what its body is."""

from __future__ import annotations

from ...graph import BinaryConvolution, FastPointwise
from ...model.functions import binary_function, fpc_function
from ..building.build import Build
from ..fragments.fragments import Fragment
from ..fragments.lowering import Lowering, Runs
from ..functions.binary_body import BinaryBody
from ..functions.fpc_body import FastPointwiseBody
from ..reading.layer_body import LayerBody
from .binary import lower_binary
from .fpc import lower_fast_pointwise

FUNCTIONS: dict[type[LayerBody], Lowering] = {
    FastPointwiseBody: Lowering(
        lower_fast_pointwise, (fpc_function.NAME,), Runs.LAYER, (FastPointwise,), title="fast pointwise convolution"
    ),
    BinaryBody: Lowering(
        lower_binary, (binary_function.NAME,), Runs.LAYER, (BinaryConvolution,), title="binary convolution"
    ),
}


def lower_function(build: Build, fragment: Fragment) -> None:
    """Add the layers of a function.

    Raises
    ------
    ModelError, UnsupportedError
        If its values do not lie as it wants them, or its bytes are not ONNX Runtime's.
    """
    FUNCTIONS[type(build.source.function(fragment.main))].lower(build, fragment)
