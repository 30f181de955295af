"""Dilation written as SpaceToBatch and BatchToSpace, as TensorFlow has it: one convolution with that dilation.

Every phase of the rows and columns is an image in a batch, which an undilated convolution reads. Exporters write the
conversions with Pad, Reshape, Transpose, SpaceToDepth, DepthToSpace and Slice, in any order and layout. So these
operators are not interpreted: ONNX Runtime moves numbers instead of values through them, which show the element that
each tap of the convolution reads, and the element that each result becomes.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from ...model.onnx_graph import OnnxGraph, attributes_of, set_nodes
from ...model.runtime import RUNTIME_ERRORS, plain_session
from ..fragments import CHOICE, LAYOUT, NORMALISATION, PAD, POINTWISE, QUANTISERS, TRANSPARENT
from ..parse import measure
from ..source import Source

CONVOLUTIONS = ("Conv", "FusedConv", "QLinearConv")
_MOVING = (*LAYOUT, *CHOICE, "DepthToSpace", "Slice", "SpaceToDepth")
#: The greatest number of elements, whose numbers are exact in float32.
_MOST = 1 << 24

Int64 = npt.NDArray[np.int64]
#: Adds a constant, under a name like the given one, and returns its name.
Constant = Callable[[str, np.ndarray], str]


class Surroundings:
    """The surroundings of a convolution in a graph whose constants and shapes are known."""

    def __init__(self, graph: OnnxGraph):
        self.graph = graph
        self.constants, self.shapes = graph.constants, graph.shapes

    def ahead(self, convolution: NodeProto) -> list[NodeProto]:
        """Return the nodes that move elements before a convolution, the last one first; added elements count as its
        padding."""
        found: list[NodeProto] = []
        name, border = convolution.input[0], 0.0
        if convolution.op_type == "QLinearConv":
            border = self._number(convolution, 2)
        while (node := self.graph.producer.get(name)) is not None:
            is_shared = self.graph.reader(name) is None
            # Every reader may have a DequantizeLinear of its own.
            if is_shared and node.op_type != "DequantizeLinear":
                break
            is_quantised = node.op_type == "QuantizeLinear"
            if is_quantised or (node.op_type in PAD and _is_constant(node)):
                fits = self._number(node, 2) == border
            else:
                fits = node.op_type in _MOVING or node.op_type == "Identity"
                fits = fits or (node.op_type == "DequantizeLinear" and border == 0)
            if not fits or self.graph.computed(node) != [node.input[0]]:
                break
            if node.op_type in QUANTISERS:
                border = 0.0 if is_quantised else self._number(node, 2)
            found.append(node)
            name = node.input[0]
            if is_shared:
                break
        return found

    def following(self, convolution: NodeProto) -> list[NodeProto]:
        """Return the nodes after a convolution that move elements or compute with each element alone."""
        found: list[NodeProto] = []
        name = convolution.output[0]
        while (node := self.graph.reader(name)) is not None and self.graph.computed(node) == [name]:
            is_known = node.op_type in (*_MOVING, *POINTWISE, NORMALISATION)
            if not is_known or len(node.output) != 1:
                break
            found.append(node)
            name = node.output[0]
        return found

    def only_for(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Return the nodes of a row whose results only the next node reads."""
        return [node for node in nodes if self.graph.reader(node.output[0]) is not None]

    def moved(self, nodes: Sequence[NodeProto], start: str) -> dict[str, Int64] | None:
        """Move numbers from 1 on, one for each element of a tensor, through nodes; 0 stands for added elements.

        Computations of the nodes are skipped. None if ONNX Runtime cannot run them.
        """
        shape = list(self.shapes.get(start, ()))
        if not shape or not all(shape) or np.prod(shape) >= _MOST:
            return None
        made = [self._moving(node) for node in nodes]
        results = [node.output[0] for node in made]
        model = self.graph.part(made, {start: shape}, results)
        numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
        try:
            values = plain_session(model).run(None, {start: numbers})
        except RUNTIME_ERRORS:
            return None
        found = {name: array.astype(np.int64) for name, array in zip(results, values, strict=True)}
        return found | {start: numbers.astype(np.int64)}

    def _moving(self, node: NodeProto) -> NodeProto:
        """Return a node that moves numbers as the given one moves values; a node that only computes becomes an
        Identity."""
        if node.op_type not in (*_MOVING, *PAD):
            return helper.make_node("Identity", self.graph.computed(node), node.output)
        copied = copy.deepcopy(node)
        if node.op_type in PAD and len(node.input) > 2:
            copied.input[2] = ""
        return copied

    def computing(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Return the nodes that compute, without quantisations that undo the dequantisation before them."""
        found: list[NodeProto] = []
        for node in nodes:
            if node.op_type in (*_MOVING, *PAD, *TRANSPARENT):
                continue
            pair = (found[-1].op_type if found else "", node.op_type)
            if pair == QUANTISERS[::-1] and self._quantisation(found[-1]) == self._quantisation(node):
                found.pop()
            else:
                found.append(node)
        return found

    def _quantisation(self, node: NodeProto) -> tuple[float, float]:
        return self._number(node, 1), self._number(node, 2)

    def _number(self, node: NodeProto, at: int) -> float:
        """Return a zero point, or the value that a Pad adds."""
        name = node.input[at] if at < len(node.input) else ""
        return float(self.constants[name].reshape(-1)[0]) if name in self.constants else 0.0


@dataclass(frozen=True)
class Dilated:
    """A convolution and the moves around it, as one dilated convolution.

    Attributes
    ----------
    network : Surroundings
    convolution : NodeProto
    ahead, following : list of NodeProto
        In order of execution.
    source, target : str
    is_last : (bool, bool)
        Whether channels are the last axis of ``source``, and of ``target``.
    dilations, pads : tuple of int
        Dilations and pads; negative pads skip rows or columns.
    moved : dict of str to array
        Indices of the elements of the convolution's result in tensors after it.
    """

    network: Surroundings
    convolution: NodeProto
    ahead: list[NodeProto]
    following: list[NodeProto]
    source: str
    target: str
    is_last: tuple[bool, bool]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    moved: dict[str, Int64]

    @property
    def replaced(self) -> list[NodeProto]:
        """The nodes around the convolution whose results are not needed any more."""
        return [*self.network.only_for(self.ahead), *self.following]

    def written(self, constant: Constant) -> list[NodeProto] | None:
        """Return the nodes that replace all of them; None if a node computes differently for different images."""
        rank, made, following = len(self.dilations), list[NodeProto](), []
        for node in self.network.computing(self.following):
            given = self._of_channels(node, constant)
            if given is None:
                return None
            following.append(given)

        def add(operator: str, operands: Sequence[str], **given: Any) -> None:
            made.append(helper.make_node(operator, ["", *operands], [""], **given))

        made += map(copy.deepcopy, self.network.computing(self.ahead))
        if self.is_last[0]:
            add("Transpose", [], perm=[0, 1 + rank, *range(1, 1 + rank)])
        if min(self.pads) < 0:
            sizes = _turned(np.empty(self.network.shapes[self.source]), is_last=self.is_last[0]).shape[2:]
            starts = [max(-before, 0) for before in self.pads[:rank]]
            ends = [size - max(-after, 0) for size, after in zip(sizes, self.pads[rank:], strict=True)]
            bounds = {"starts": starts, "ends": ends, "axes": range(2, 2 + rank)}
            add("Slice", [constant(f"{self.target}_{key}", np.array(each, np.int64)) for key, each in bounds.items()])
        convolution = copy.deepcopy(self.convolution)
        kept = [item for item in convolution.attribute if item.name not in ("auto_pad", "dilations", "pads")]
        del convolution.attribute[:]
        convolution.attribute.extend(kept)
        for name, values in (("dilations", self.dilations), ("pads", [max(pad, 0) for pad in self.pads])):
            convolution.attribute.append(helper.make_attribute(name, values))
        made += [convolution, *following]
        if self.is_last[1]:
            add("Transpose", [], perm=[0, *range(2, 2 + rank), 1])
        return self._connected(made)

    def _connected(self, made: list[NodeProto]) -> list[NodeProto]:
        """Chain nodes: every input that is not constant is connected to the result of the node before."""
        name = self.source
        for number, node in enumerate(made):
            node.input[:] = [
                name if at == 0 and not one else one if not one or one in self.network.constants else name
                for at, one in enumerate(node.input)
            ]
            name = self.target if number == len(made) - 1 else f"{self.target}_{node.op_type}_{number}"
            node.output[0] = name
            node.name = node.name or f"{self.convolution.name}_{node.op_type}_{number}"
        return made

    def _of_channels(self, node: NodeProto, constant: Constant) -> NodeProto | None:
        """Return a pointwise node with its constants along the channels of the convolution's own result."""
        constants, copied = self.network.constants, copy.deepcopy(node)
        place = next(name for name in node.input if name and name not in constants)
        numbers = self.moved[place] - 1
        _, channels, *sizes = self.moved[self.convolution.output[0]].shape
        channel = numbers // int(np.prod(sizes)) % channels
        if node.op_type == NORMALISATION:
            along = np.arange(channels).reshape(-1, *[1] * (channel.ndim - 2))
            return copied if channel.ndim > 1 and (channel == along).all() else None
        for at, name in enumerate(node.input):
            held = constants.get(name)
            if held is None or held.size == 1:
                continue
            if node.op_type in QUANTISERS or held.ndim > channel.ndim:
                return None
            try:
                spread = np.broadcast_to(held, channel.shape)
            except ValueError:
                return None
            values = np.empty(channels, held.dtype)
            values[channel] = spread
            if not np.array_equal(values[channel], spread):
                return None
            copied.input[at] = constant(f"{name}_of_channels", values.reshape(-1, *[1] * len(sizes)))
        return copied


def find_dilated(network: Surroundings, convolution: NodeProto) -> Dilated | None:
    """Find the dilated convolution that a convolution of several images and its surroundings are, if they are one."""
    if network.graph.computed(convolution) != [convolution.input[0]]:
        return None
    ahead, following = network.ahead(convolution), network.following(convolution)
    after = network.moved(following, convolution.output[0]) if ahead and following else None
    if after is None:
        return None
    for nodes in _cheapest(network, (ahead[at::-1] for at in range(len(ahead)))):
        source = nodes[0].input[0]
        before = network.moved(nodes, source)
        if before is None or before[source].shape[0] != 1:
            continue
        for others in _cheapest(network, (following[: at + 1] for at in range(len(following)))):
            target = others[-1].output[0]
            moves = _Moves(before[source], before[convolution.input[0]], after[convolution.output[0]], after[target])
            for is_last in itertools.product((False, True), (False, True)):
                found = _geometry(convolution, network, moves, is_last)
                if found is not None:
                    return Dilated(network, convolution, nodes, others, source, target, is_last, *found, after)
    return None


def _cheapest(network: Surroundings, rows: Iterable[list[NodeProto]]) -> list[list[NodeProto]]:
    """Yield rows of nodes in the order of trials: those with few that compute first, then those with many others."""
    return sorted(rows, key=lambda nodes: (len(network.computing(nodes)), -len(nodes)))


@dataclass(frozen=True)
class _Moves:
    """Numbered elements of the source, in the convolution's input, of the convolution's result, and in the final
    tensor."""

    source: Int64
    read: Int64
    result: Int64
    target: Int64


def _geometry(
    convolution: NodeProto, network: Surroundings, moves: _Moves, is_last: tuple[bool, bool]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return dilations and pads of the one convolution; None if there is none."""
    rank = moves.read.ndim - 2
    weights = network.constants.get(convolution.input[3 if convolution.op_type == "QLinearConv" else 1])
    given = attributes_of(convolution)
    ones, none = [1] * rank, [0] * 2 * rank
    is_plain = given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and set(given.get("strides", ones)) == {1}
    if weights is None or rank not in (1, 2) or not is_plain:
        return None
    if moves.source.ndim != rank + 2 or moves.target.ndim != rank + 2 or len(moves.target) != 1:
        return None
    source, target = (
        _turned(array, is_last=last) for array, last in zip((moves.source, moves.target), is_last, strict=True)
    )
    kernel, own = weights.shape[2:], given.get("dilations", ones)
    pads = none if given.get("auto_pad") == b"VALID" else given.get("pads", none)
    border = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    read = _pixels(np.pad(moves.read, border), source)
    written = _places(target, moves.result)
    if read is None or written is None:
        return None
    # This is the pixel of the source that each tap reads for each pixel of the target.
    image, *corner = written
    taps = np.meshgrid(*(np.arange(size) for size in kernel), indexing="ij")
    spread = [
        place.reshape(*place.shape, *[1] * rank) + tap * step
        for place, tap, step in zip(corner, taps, own, strict=True)
    ]
    taken = read[(image.reshape(*image.shape, *[1] * rank), *spread)]
    outputs = np.meshgrid(*(np.arange(size) for size in target.shape[2:]), indexing="ij")
    is_inside, sizes = taken > 0, source.shape[2:]
    if not is_inside.any():
        return None
    found = np.unravel_index(np.maximum(taken - 1, 0), sizes)
    dilations, begins, expected = [], [], []
    for axis in range(rank):
        at = outputs[axis].reshape(*outputs[axis].shape, *[1] * rank)
        for factor in range(1, len(moves.read) + 1):
            begin = at + taps[axis] * own[axis] * factor - found[axis]
            if kernel[axis] == 1 or (begin[is_inside] == begin[is_inside][0]).all():
                break
        else:
            return None
        first = int(begin[is_inside][0])
        dilations.append(own[axis] * factor)
        begins.append(first)
        expected.append(np.broadcast_to(at + taps[axis] * dilations[axis] - first, taken.shape))
    reached = np.all([(place >= 0) & (place < size) for place, size in zip(expected, sizes, strict=True)], axis=0)
    strides = [int(np.prod(sizes[axis + 1 :])) for axis in range(rank)]
    wanted = sum(place * stride for place, stride in zip(expected, strides, strict=True)) + 1
    if not np.array_equal(taken, np.where(reached, wanted, 0)):
        return None
    ends = [
        size - 1 + (width - 1) * step - first - (whole - 1)
        for size, width, step, first, whole in zip(target.shape[2:], kernel, dilations, begins, sizes, strict=True)
    ]
    return tuple(dilations), (*begins, *ends)


def _pixels(read: Int64, source: Int64) -> Int64 | None:
    """Return int64[images, *sizes], the source pixel, from 1, of each pixel; None if channels are mixed."""
    if read.shape[1] != source.shape[1]:
        return None
    known = np.zeros(source.size + 1, np.int64)
    known[source] = np.arange(1, source[0, 0].size + 1).reshape(source.shape[2:])
    channel = np.zeros(source.size + 1, np.int64)
    channel[source] = np.arange(source.shape[1]).reshape(-1, *[1] * (source.ndim - 2))
    pixels = known[read]
    along = np.arange(read.shape[1]).reshape(-1, *[1] * (read.ndim - 2))
    is_own = ((channel[read] == along) | (read == 0)).all()
    return pixels[:, 0] if is_own and (pixels == pixels[:, :1]).all() else None


def _places(target: Int64, result: Int64) -> tuple[Int64, ...] | None:
    """Return image and pixel of the convolution's result for each pixel of the target; None if channels differ."""
    if not target.size or target.min() < 1 or target.shape[1] != result.shape[1]:
        return None
    image, channel, *pixel = np.unravel_index(target[0] - 1, result.shape)
    along = np.arange(len(channel)).reshape(-1, *[1] * len(pixel))
    is_own = (channel == along).all() and all((place == place[:1]).all() for place in (image, *pixel))
    return (image[0], *(place[0] for place in pixel)) if is_own else None


def _turned(array: np.ndarray, *, is_last: bool) -> np.ndarray:
    return np.moveaxis(array, -1, 1) if is_last else array


def _is_constant(node: NodeProto) -> bool:
    """Return whether a Pad has a constant value; as an attribute, before operator set 11, it must be 0."""
    given = attributes_of(node)
    return given.get("mode", b"constant") == b"constant" and not given.get("value", 0)


def merge_dilations(source: Source) -> None:
    """Rewrite convolutions of a measured model between SpaceToBatch and BatchToSpace as dilated ones."""
    for name in [node.name for node in source.nodes if _has_images(source, node)]:
        convolution = next(node for node in source.nodes if node.name == name)
        found = find_dilated(Surroundings(source), convolution)
        made = None if found is None else found.written(source.add_constant)
        if found is None or made is None:
            continue
        dropped = {node.name for node in found.replaced}
        graph = source.model.graph
        parts = (made if node.name == name else [node] for node in graph.node if node.name not in dropped)
        set_nodes(graph, itertools.chain.from_iterable(parts))
        measure(source)


def _has_images(source: Source, node: NodeProto) -> bool:
    shape = source.shapes.get(node.input[0], ()) if node.op_type in CONVOLUTIONS else ()
    return bool(shape) and shape[0] > 1
