"""Dilation as TensorFlow writes it, in float models and in quantised ones: one convolution with that dilation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import assert_answers, needs_reference
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Convolution
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import float_model, quantize
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.rewriting.convolutions import DILATION

pytestmark = needs_reference

CHANNELS = 4


@dataclass
class Network:
    """Nodes one after the other, the tensor that the next one reads, and constants."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    held: list[onnx.TensorProto] = field(default_factory=list)
    name: str = "x"

    def add(self, operator: str, *operands: object, first: bool = False, **given: object) -> None:
        at, names = len(self.nodes), []
        for number, operand in enumerate(operands):
            array = np.asarray(operand)
            names.append(f"c{at}_{number}")
            self.held.append(
                numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, names[-1])
            )
        inputs = [*names, self.name] if first else [self.name, *names]
        self.nodes.append(helper.make_node(operator, inputs, [f"t{at}"], f"{operator}_{at}", **given))
        self.name = f"t{at}"


@dataclass(frozen=True)
class Case:
    """A dilated convolution: pads are what SpaceToBatch adds, crops are what BatchToSpace takes away."""

    sizes: tuple[int, ...] = (6, 8)
    block: tuple[int, ...] = (2, 2)
    kernel: tuple[int, ...] = (3, 3)
    pads: tuple[int, ...] = (2, 2, 2, 2)
    crops: tuple[int, ...] = (0, 0, 0, 0)
    group: int = 1
    spelling: str = "reshapes"
    channels_last: bool = False
    own: int = 1
    own_pad: int = 0
    between: tuple[str, ...] = ()


def there(network: Network, case: Case, sizes: list[int], axes: list[int]) -> None:
    """From pixels to images; ``sizes`` are all of the map's with its border, ``axes`` those of the pixels."""
    rank = len(case.block)
    if case.spelling == "depths":
        network.add("Transpose", perm=[axes[-1] % 3 + 1 if case.channels_last else 1, 0, *axes])
        network.add("SpaceToDepth", blocksize=case.block[0])
        back = [1, *range(2, 2 + rank), 0] if case.channels_last else [1, 0, *range(2, 2 + rank)]
        network.add("Transpose", perm=back)
        return
    split, places, kept = [], [], []
    for axis, size in enumerate(sizes):
        kept.append(len(split))
        if axis in axes:
            factor = case.block[axes.index(axis)]
            split += [size // factor, factor]
            places.append(len(split) - 1)
        else:
            split.append(size)
    network.add("Reshape", np.array([-1, *split[1:]]))
    network.add("Transpose", perm=[*places, *kept])
    merged = [size // case.block[axes.index(axis)] if axis in axes else size for axis, size in enumerate(sizes)]
    network.add("Reshape", np.array([-1, *merged[1:]]))


def back_again(network: Network, case: Case, sizes: list[int], axes: list[int]) -> None:
    """From images, each of ``sizes``, to pixels."""
    rank = len(case.block)
    if case.spelling == "depths":
        network.add("Transpose", perm=[3, 0, 1, 2] if case.channels_last else [1, 0, *range(2, 2 + rank)])
        network.add("DepthToSpace", blocksize=case.block[0])
        network.add(
            "Transpose", perm=[1, *range(2, 2 + rank), 0] if case.channels_last else [1, 0, *range(2, 2 + rank)]
        )
        return
    network.add("Reshape", np.array([*case.block, -1, *sizes[1:]]))
    perm = [rank]
    for axis in range(1, len(sizes)):
        perm.append(rank + axis)
        if axis in axes:
            perm.append(axes.index(axis))
    network.add("Transpose", perm=perm)
    whole = [size * case.block[axes.index(axis)] if axis in axes else size for axis, size in enumerate(sizes)]
    network.add("Reshape", np.array([-1, *whole[1:]]))


def convolution(network: Network, weights: np.ndarray, **given: object) -> None:
    network.add("Conv", weights, np.linspace(-0.5, 0.5, len(weights)), **given)


def network(case: Case) -> onnx.ModelProto:
    """Between two pointwise convolutions, so that the host runs nothing of it."""
    rng, rank, made = np.random.default_rng(0), len(case.sizes), Network()
    ones = [1] * rank
    convolution(made, rng.normal(size=(CHANNELS, 3, *ones)))
    last = [0, *range(2, 2 + rank), 1]
    first = [0, 1 + rank, *range(1, 1 + rank)]
    if case.channels_last:
        made.add("Transpose", perm=last)
    axes = list(range(1, 1 + rank)) if case.channels_last else list(range(2, 2 + rank))
    begin, end = case.pads[:rank], case.pads[rank:]

    def whole(inner: list[int], channels: int = CHANNELS) -> list[int]:
        return [1, *inner, channels] if case.channels_last else [1, channels, *inner]

    made.add("Pad", np.array([*whole(list(begin), 0), *whole(list(end), 0)]) * np.array(2 * [0, *[1] * (rank + 1)]))
    padded = [size + sum(both) for size, both in zip(case.sizes, zip(begin, end, strict=True), strict=True)]
    there(made, case, whole(padded), axes)
    if case.channels_last:
        made.add("Transpose", perm=first)
    weights = rng.normal(size=(6 if case.group == 1 else CHANNELS, CHANNELS // case.group, *case.kernel)) / 3
    own = {"dilations": [case.own] * rank, "pads": [case.own_pad] * 2 * rank}
    convolution(made, weights, group=case.group, **own)
    outputs = len(weights)
    images = [
        size // factor + 2 * case.own_pad - case.own * (width - 1)
        for size, factor, width in zip(padded, case.block, case.kernel, strict=True)
    ]
    values = np.linspace(-1, 1, outputs)
    for each in case.between:
        if each == "Relu":
            made.add("Relu")
        elif each == "BatchNormalization":
            made.add(each, values + 2, values, values / 2, values + 3)
    if case.channels_last:
        made.add("Transpose", perm=last)
    if "Add" in case.between:
        made.add("Add", values if case.channels_last else values.reshape(-1, *ones))
    if "Mul" in case.between:
        made.add("Mul", np.full((), 0.5), first=True)
    back_again(made, case, whole(images, outputs), axes)
    spread = [size * factor for size, factor in zip(images, case.block, strict=True)]
    if any(case.crops):
        ends = [size - crop for size, crop in zip(spread, case.crops[rank:], strict=True)]
        made.add("Slice", np.array(case.crops[:rank]), np.array(ends), np.array(axes))
    if case.channels_last:
        made.add("Transpose", perm=first)
    convolution(made, rng.normal(size=(3, outputs, *ones)))
    made.nodes[-1].output[0] = "y"
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, *case.sizes]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(made.nodes, "dilated", values[:1], values[1:], made.held)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    )


CASES = {
    "same": Case(),
    "valid": Case(pads=(0, 0, 0, 0)),
    "3": Case((9, 6), (3, 3), pads=(3, 3, 3, 3)),
    "4 with crops": Case((10, 9), (4, 4), pads=(4, 4, 6, 7), crops=(0, 0, 2, 3)),
    "crops on both sides": Case(pads=(2, 2, 4, 4), crops=(1, 2, 1, 0)),
    "crops of what a border is read for": Case(pads=(2, 4, 2, 2), crops=(2, 5, 1, 1)),
    "rectangular": Case((6, 9), (2, 3), (3, 2), pads=(2, 0, 2, 3)),
    "along one axis": Case((5, 8), (1, 2), (3, 3), pads=(1, 2, 1, 2)),
    "depthwise": Case(group=CHANNELS),
    "two groups": Case(group=2),
    "one dimension": Case((12,), (3,), (3,), (3, 3), (0, 0)),
    "one row": Case((1, 8), (1, 2), (1, 3), pads=(0, 2, 0, 2)),
    "depths": Case(spelling="depths"),
    "depths, channels last": Case(spelling="depths", channels_last=True),
    "channels last": Case(channels_last=True),
    "channels last with crops": Case((10, 9), (4, 4), pads=(4, 4, 6, 7), crops=(0, 0, 2, 3), channels_last=True),
    "a dilation within": Case((10, 12), own=2, pads=(4, 4, 4, 4)),
    "a border within": Case(pads=(0, 0, 0, 0), own_pad=1),
    "operators between": Case(between=("Relu", "Add", "Mul")),
    "operators between, channels last": Case(between=("Relu", "Add", "Mul"), channels_last=True),
    "normalised between": Case(between=("Relu", "BatchNormalization")),
}


def samples(case: Case) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(4, 3, *case.sizes)).astype(np.float32)}


def dilations(model: onnx.ModelProto) -> list[list[int]]:
    return [
        list(item.ints)
        for node in model.graph.node
        if node.op_type == "Conv"
        for item in node.attribute
        if item.name == "dilations" and max(item.ints) > 1
    ]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_a_float_model_gets_one_dilated_convolution(name: str, tmp_path: Path) -> None:
    case, given = CASES[name], network(CASES[name])
    prepared, found = prepare(onnx.load_from_string(given.SerializeToString()), "net", tmp_path)
    assert DILATION in [one.rewriting for one in found]
    wanted = [factor * case.own for factor in case.block]
    assert [
        [step for step, width in zip(each, case.kernel, strict=True) if width > 1] for each in dilations(prepared)
    ] == [[step for step, width in zip(wanted, case.kernel, strict=True) if width > 1]]
    # Nothing is left of the way to images and back.
    assert not {"SpaceToDepth", "DepthToSpace", "Reshape"} & {node.op_type for node in prepared.graph.node}
    feeds = {"x": samples(case)["x"][:1]}
    results = [open_session(Model.written(each)).run(None, feeds)[0] for each in (given, prepared)]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_a_quantised_model_has_one_dilated_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.setattr(float_model, "SPELLINGS", ())
    data = quantize(network(case).SerializeToString(), samples(case))
    graph = import_model(data)
    layers = [layer for layer in graph.layers if isinstance(layer, Convolution)]
    assert any(max(layer.window.dilation) > 1 for layer in layers)
    feeds = {"x": samples(case)["x"][:1]}
    assert_answers(data, feeds)


@pytest.mark.parametrize("what", ["order", "read elsewhere", "an output"])
def test_what_is_no_dilation_stays(what: str, tmp_path: Path) -> None:
    model = network(Case())
    second = [node for node in model.graph.node if node.op_type == "Conv"][1]
    if what == "order":
        # Images in another order than that in which they become pixels again.
        turned = next(node for node in model.graph.node if node.op_type == "Transpose")
        turned.attribute[0].ints[:2] = turned.attribute[0].ints[1::-1]
    elif what == "read elsewhere":
        model.graph.node.append(helper.make_node("Relu", [second.input[0]], ["z"], "reader"))
    name = {"read elsewhere": "z", "an output": second.output[0]}.get(what)
    if name is not None:
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    _, found = prepare(model, "net", tmp_path)
    assert DILATION not in [one.rewriting for one in found]


def test_a_border_of_another_value_stays_in_front(tmp_path: Path) -> None:
    given = network(Case())
    given.graph.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
    next(node for node in given.graph.node if node.op_type == "Pad").input.append("one")
    prepared, _ = prepare(onnx.load_from_string(given.SerializeToString()), "net", tmp_path)
    assert [node.op_type for node in prepared.graph.node] == ["Conv", "Pad", "Conv", "Conv"]
    feeds = {"x": samples(Case())["x"][:1]}
    results = [open_session(Model.written(each)).run(None, feeds)[0] for each in (given, prepared)]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-5)


def test_zeros_in_place_of_rows_are_no_border(tmp_path: Path) -> None:
    """A row that is left out, and one of zeros where it was: the map in front of both has another row there."""
    given = network(Case())
    pad = next(node for node in given.graph.node if node.op_type == "Pad")
    for name, value in (("from", 0), ("to", 5), ("axis", 2)):
        given.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    place = list(given.graph.node).index(pad)
    given.graph.node.insert(place, helper.make_node("Slice", [pad.input[0], "from", "to", "axis"], ["fewer"], "cut"))
    pad = next(node for node in given.graph.node if node.op_type == "Pad")
    pad.input[0] = "fewer"
    pads = next(tensor for tensor in given.graph.initializer if tensor.name == pad.input[1])
    pads.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(pads) + np.eye(8, dtype=np.int64)[6], pads.name))
    prepared, found = prepare(onnx.load_from_string(given.SerializeToString()), "net", tmp_path)
    assert DILATION in [one.rewriting for one in found]
    feeds = {"x": samples(Case())["x"][:1]}
    results = [open_session(Model.written(each)).run(None, feeds)[0] for each in (given, prepared)]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-5)
