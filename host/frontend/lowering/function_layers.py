"""Lower functions of the model that are layers, each kind by what its body is."""

from __future__ import annotations

from collections.abc import Callable

from ..building.build import Build
from ..fragments.fragments import Fragment
from ..functions.binary_body import BinaryBody
from ..functions.fpc_body import FastPointwiseBody
from ..reading.layer_body import LayerBody
from .binary import lower_binary
from .fpc import lower_fast_pointwise

_LOWERINGS: dict[type[LayerBody], Callable[[Build, Fragment], None]] = {
    FastPointwiseBody: lower_fast_pointwise,
    BinaryBody: lower_binary,
}


def lower_function(build: Build, fragment: Fragment) -> None:
    """Add the layers of a function.

    Raises
    ------
    ModelError, UnsupportedError
        If its values do not lie as it wants them, or its bytes are not ONNX Runtime's.
    """
    _LOWERINGS[type(build.source.function(fragment.main))](build, fragment)
