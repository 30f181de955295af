"""Compare what a unit was lowered to with the unit in ONNX Runtime, at its own shape."""
from __future__ import annotations

import numpy as np

from ..evaluate import evaluate_layer, to_onnx
from ..graph import View
from ..tabulate import CODES, open_single_threaded
from .build import Build
from .cut import cut
from .errors import UnsupportedError
from .units import Unit


def check_layers(build: Build, unit: Unit, first_layer: int) -> None:
    """Run a unit and its layers on codes in random order.

    Parameters
    ----------
    build : Build
    unit : Unit
        Its outputs have their places.
    first_layer : int
        Index of its first layer in the graph; those behind it are its own.

    Raises
    ------
    UnsupportedError
        If a byte of an output differs.
    """
    source, generator = build.source, np.random.default_rng(0)
    shapes = {name: source.shapes[name] for name in unit.inputs}
    session = open_single_threaded(cut(source, unit.nodes, shapes, unit.outputs))
    # Two ONNX tensors may be views of one tensor.
    read = dict.fromkeys(build.places[name].tensor for name in unit.inputs)
    values = {name: _shuffled(generator, build.graph.tensors[name].shape) for name in read}
    feeds = {name: to_onnx(_view(build, name), values[build.places[name].tensor]) for name in unit.inputs}
    for layer in build.graph.layers[first_layer:]:
        values |= evaluate_layer(layer, values, build.graph.tensors)
    for name, expected in zip(unit.outputs, session.run(unit.outputs, feeds), strict=True):
        result = to_onnx(_view(build, name), values[build.places[name].tensor])
        if result.tobytes() != expected.tobytes():
            raise UnsupportedError("ONNX Runtime gives other bytes for the whole tensor than for each code alone",
                               "replace the operator")


def _shuffled(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    codes = np.resize(generator.permutation(CODES), shape)
    generator.shuffle(codes.reshape(-1))
    return codes


def _view(build: Build, name: str) -> View:
    place = build.places[name]
    return View(name, place.shape, place.axes, build.source.types[name] == np.uint8)
