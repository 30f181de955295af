"""Tables of parts of the model, and the comparison of what a fragment became with the fragment in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx

from ...graph import Int8, View
from ...graph.evaluate import to_onnx
from ...graph.tabulate import CODES, open_part, tabulate
from ...model.executed import open_session
from ...model.model import Model
from ..fragments.fragments import Fragment, Kind
from ..reading.cut import cut
from ..reading.errors import UnsupportedError
from .build import Build


def table_of(model: onnx.ModelProto, ahead: Mapping[str, Int8] | None = None) -> Int8:
    """The table of a part of the model, see :func:`~lutterfly.host.graph.tabulate.tabulate`.

    Raises
    ------
    UnsupportedError
        If ONNX Runtime's result for a code depends on its position.
    """
    try:
        return tabulate(model, ahead)
    except ValueError as error:
        raise UnsupportedError(f"it cannot be a table: {error}", "replace the operator") from error


def are_powers_of_two(numbers: npt.ArrayLike) -> bool:
    """Whether all numbers are whole or negative powers of two: nothing is rounded where they are factors."""
    return bool((np.frexp(numbers)[0] == 0.5).all())


def check_layers(build: Build, fragment: Fragment, first_layer: int, values: Mapping[str, Int8] | None = None) -> None:
    """Run a fragment and its layers on codes in random order.

    Parameters
    ----------
    build : Build
    fragment : Fragment
        Its outputs have their places.
    first_layer : int
        Index of its first layer in the graph; those after it are its own.
    values : mapping of str to int8[height, width, channels]
        Codes of the graph's tensors that they read, by default random ones.

    Raises
    ------
    UnsupportedError
        If a byte of an output differs.
    """
    source = build.source
    shapes = {name: source.shapes[name] for name in fragment.inputs}
    part = cut(source, fragment.nodes, shapes, fragment.outputs)
    # Where a processor's kernels for products saturate, ONNX Runtime must replace them.
    session = (
        open_session(Model.written(part)) if fragment.kind in (Kind.LINEAR, Kind.MATRIX_PRODUCT) else open_part(part)
    )
    # Two ONNX tensors may be views of one tensor.
    read = dict.fromkeys(build.places[name].tensor for name in fragment.inputs)
    values = dict(values or {name: random_codes(build, name, seed) for seed, name in enumerate(read)})
    feeds = {name: to_onnx(_view(build, name), values[build.places[name].tensor]) for name in fragment.inputs}
    for layer in build.graph.layers[first_layer:]:
        values |= layer.evaluate(values, build.graph.tensors)
    for name, expected in zip(fragment.outputs, session.run(fragment.outputs, feeds), strict=True):
        result = to_onnx(_view(build, name), values[build.places[name].tensor])
        if result.tobytes() != expected.tobytes():
            raise UnsupportedError(
                f"ONNX Runtime gives other bytes for {fragment.label} than its layers here",
                "replace the operator, and report the model",
            )


def random_codes(build: Build, tensor: str, seed: int = 0) -> Int8:
    """Codes of a tensor of the graph in random order: all 256, if it has that many elements."""
    generator = np.random.default_rng(seed)
    codes = np.resize(generator.permutation(CODES), build.graph.tensors[tensor].shape)
    generator.shuffle(codes.reshape(-1))
    return codes


def _view(build: Build, name: str) -> View:
    place = build.places[name]
    return View(name, place.shape, place.axes, build.source.types[name] == np.uint8, order=place.order)
