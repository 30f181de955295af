"""What functions of the model that are layers compute, as far as all kinds of them have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Geometry:
    """A kernel of a convolution, its attributes as ONNX has them; the kernel of a pointwise one has no sizes."""

    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()

    @property
    def attributes(self) -> dict[str, tuple[int, ...]]:
        """Of a convolution; none where it has no kernel."""
        names = ("strides", "dilations", "pads")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class LayerBody(Protocol):
    """What a function computes, as far as all kinds of layers have it.

    Attributes
    ----------
    inputs, outputs : int
        Channels.
    spatial : int or None
        Dimensions after the channels; None where no constant tells.
    geometry : Geometry
    zero_point, result_zero_point : int
        int8 codes, of input and output.
    """

    inputs: int
    outputs: int
    spatial: int | None
    geometry: Geometry
    zero_point: int
    result_zero_point: int
