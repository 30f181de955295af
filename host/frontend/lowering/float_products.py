"""Lower products that ONNX Runtime computes in float, where an integer form gives the same bytes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ....golden.numerics.convolution import Int32
from ....golden.numerics.requant import pack_parameters, requantise
from ...graph import Arrange, CodeEpilogue, Convolution, Int8, Selection, Window, copies
from ...graph.boxes import MOST_PIECES, channel_runs
from ...graph.geometry import from_codes, to_codes
from ...graph.tabulate import CODES, code_offset, open_part
from ...model.model_graph import expose
from ...model.onnx_graph import attributes_of
from ..build import CHANNELS_FIRST, Build, Place, are_powers_of_two, check_layers, image_place, random_codes
from ..classify import quantisation
from ..elements import as_image, follow_trunk, geometry_of
from ..fragments import LAYOUT, POOLING, QUANTISERS, TRANSPARENT, TRANSPOSED, Fragment, Kind, label
from ..source import SPELL, OperandError, Source, UnsupportedError, cut
from .lowering import refuses
from .products import add_convolution, check_zero_point, constant

# Operands of float products as integers: weights and bias that DequantizeLinear makes of codes.

MATRICES = ("Gemm", "MatMul")
#: Relative rounding error of float32.
UNIT = 2.0**-24
#: Relative error, in these units, of a bias quantised with the scale of input times weight: the scale's and its own.
_ROUNDINGS = 4

Float64 = npt.NDArray[np.float64]


def zero_point_of(source: Source, node: NodeProto) -> int:
    """Return the zero point of a QuantizeLinear or DequantizeLinear."""
    given = constant(source, node, 2)
    return 0 if given is None else int(given.item())


def weights_of(source: Source, node: NodeProto) -> tuple[Int8, npt.NDArray[np.float32]]:
    """Return the codes and scales of weights before DequantizeLinear: int8[outputs, ...] and float32[outputs].

    The codes of a transposed convolution are int8[inputs, outputs / groups, ...], as in the file.
    """
    name = node.input[1]
    values, maker = source.constants[name], {out: made for made in source.model.graph.node for out in made.output}
    dequantised = maker.get(name)
    while dequantised is not None and dequantised.op_type in (*LAYOUT, *TRANSPARENT):
        dequantised = maker.get(dequantised.input[0])
    problem = OperandError(
        "weights",
        name,
        f"of {label(node)} are no int8 codes times one scale for each output channel",
        "symmetric int8 weights",
    )
    if dequantised is None or dequantised.op_type != "DequantizeLinear":
        raise problem
    if values.ndim not in ((2,) if node.op_type in MATRICES else (3, 4)):
        raise UnsupportedError("")
    given = attributes_of(node)
    values = values.T if node.op_type in MATRICES and not given.get("transB", 0) else values
    axis = 1 if node.op_type in TRANSPOSED else 0
    scales = source.constants[dequantised.input[1]].reshape(-1)
    if scales.size not in (1, values.shape[axis]):
        raise problem
    scales = np.broadcast_to(scales, values.shape[axis]).astype(np.float32)
    along = scales.reshape(*[1] * axis, -1, *[1] * (values.ndim - 1 - axis))
    with np.errstate(all="ignore"):
        codes = np.rint(values / along)
    if not ((np.abs(codes + 0.5) <= 127.5).all() and np.array_equal(codes.astype(np.float32) * along, values)):
        raise problem
    return codes.astype(np.int8), np.tile(scales, given.get("group", 1)) if axis else scales


def bias_of(source: Source, node: NodeProto, unit: Float64) -> tuple[npt.NDArray[np.int32], Float64]:
    """Return the bias as int32[outputs], in units of input scale times weight scale up to rounding, and the file's."""
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(len(unit), np.int32), np.zeros(len(unit))
    real = np.broadcast_to(source.constants[node.input[2]].reshape(-1), len(unit)).astype(np.float64)
    whole = np.rint(real / unit)
    wrong = np.abs(real / unit - whole) > np.abs(whole) * _ROUNDINGS * UNIT
    wrong |= np.abs(whole) * _ROUNDINGS * UNIT >= 0.5
    if wrong.any():
        raise OperandError(
            "bias",
            node.input[2],
            f"of channel {int(wrong.argmax())} is no whole multiple of input scale times weight scale",
            "a bias quantised with that scale (Brevitas: bias_quant=Int32Bias)",
        )
    return whole.astype(np.int32), real


# Products that ONNX Runtime computes in float, and that give the bytes of an integer sum in any order of additions.
#
# Between DequantizeLinear and QuantizeLinear of other types, or with a Flatten before it, a product stays in float.
# Its code is certain in two cases. Where scales are powers of two, every number is a whole multiple of one of them,
# and nothing is rounded before the code. Elsewhere no sum may be so close to a tie that float32's rounding errors
# could decide.

CONVOLUTIONS = ("Conv", "FusedConv")
_TRUNK, _CUTTING = (*LAYOUT, *POOLING), ("Relu", "Clip")
#: Rounding errors of a term besides those of the additions: of its factors, the product and the quotient, and of the
#: requantiser's scale and product; and half as many again for terms of second order.
_SUM_ROUNDINGS = 16
#: Magnitudes from which float32 holds multiples of the least term exactly.
_LEAST_TERM = 2.0**-100


@dataclass
class FloatProduct:
    """A float product in integers.

    Attributes
    ----------
    node : NodeProto
    before, after : list of NodeProto
        Layout operators and max pooling before and after it.
    weights : int8[outputs, ...]
        Codes of the weights; for a matrix product int8[outputs, features].
    bias : int32[outputs]
    scales : float32[outputs]
        Scales of the weights.
    ends : tuple of float32
        Scales of input and output.
    codes : tuple of int
        Least and greatest code of the input, in the file's codes.
    zero_points : tuple of int
        Zero points of input and output.
    low, high : int
        Bounds of the output's code after Relu and Clip.
    channels : int64[outputs]
        Channels of the operator's output, for messages.
    """

    node: NodeProto
    before: list[NodeProto]
    after: list[NodeProto]
    weights: Int8
    bias: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float32]
    ends: tuple[np.float32, np.float32]
    codes: tuple[int, int]
    zero_points: tuple[int, int]
    low: int
    high: int
    channels: npt.NDArray[np.int64]
    _real_bias: Float64 = field(default_factory=lambda: np.zeros(0))

    def check(self) -> None:
        """Check that no order of float32 additions can give another code than the integer sum.

        Raises
        ------
        UnsupportedError
            The message names a channel and a sum whose code is not certain.
        """
        weights = self.weights.reshape(len(self.weights), -1).astype(np.float64)
        unit = self.ends[0].astype(np.float64) * self.scales.astype(np.float64)
        reach = [code - self.zero_points[0] for code in self.codes]
        # Padding counts as 0.
        steps = np.stack([weights * reach[0], weights * reach[1], weights * 0])
        least, greatest = (end.sum(axis=1) + self.bias for end in (steps.min(axis=0), steps.max(axis=0)))
        total = np.abs(weights).sum(axis=1) * max(map(abs, reach)) + np.abs(self.bias)
        if self._is_exact(unit, total):
            return
        ratio = unit / np.float64(self.ends[1])
        bound = total * ratio * (weights.shape[1] + 1 + _SUM_ROUNDINGS) * UNIT
        ties = np.arange(self.low, self.high) - self.zero_points[1] + 0.5
        below = np.floor(ties[:, None] / ratio)
        for sums in (below, below + 1):
            near = (np.abs(sums * ratio - ties[:, None]) <= bound) & (sums >= least) & (sums <= greatest)
            if near.any():
                tie, channel = (int(at[0]) for at in np.nonzero(near))
                raise UnsupportedError(
                    f"float32 may round the sum {int(sums[tie, channel])} of channel {self.channels[channel]} to the "
                    f"code {self.low + tie} or to {self.low + tie + 1}",
                    "scales that are powers of two (Brevitas: FixedPoint quantisers, or export_qonnx)",
                )

    def _is_exact(self, unit: Float64, total: Float64) -> bool:
        """Return whether nothing is rounded: all numbers are multiples of one power of two, by at most 2**24."""
        scales = np.concatenate([self.scales, self.ends])
        is_power = are_powers_of_two(scales) and unit.min() >= _LEAST_TERM
        return bool(is_power and (total <= 1 / UNIT).all() and np.array_equal(self._real_bias, self.bias * unit))


@refuses(
    "something else than a product of codes with quantised weights stands in it",
    "it is no product that has an integer form",
)
def read_float_product(source: Source, fragment: Fragment) -> FloatProduct:
    """Read a fragment whose product ONNX Runtime computes in float."""
    node = next((node for node in fragment.nodes if node.op_type in TRANSPOSED), fragment.main)
    before, after = _around(fragment, node)
    given = attributes_of(node)
    reads_codes = len(fragment.inputs) == 1 and source.dynamic_inputs(node) == [node.input[0]]
    foreign = [other for other in before if other.op_type not in _TRUNK]
    foreign += [other for other in after if other.op_type not in (*_TRUNK, *_CUTTING)]
    plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1 and not given.get("transA", 0)
    plain = plain and given.get("activation", b"Relu") in (b"Relu", b"Clip")
    if node.op_type not in (*CONVOLUTIONS, *MATRICES, *TRANSPOSED) or foreign or not (reads_codes and plain):
        raise UnsupportedError("")
    first, last = fragment.nodes[0], fragment.nodes[-1]
    if (first.op_type, last.op_type) != ("DequantizeLinear", "QuantizeLinear"):
        raise UnsupportedError("")
    ends = tuple(np.float32(source.constants[end.input[1]].item()) for end in (first, last))
    zero_points = tuple(zero_point_of(source, end) for end in (first, last))
    weights, scales = weights_of(source, node)
    bias, real_bias = bias_of(source, node, ends[0].astype(np.float64) * scales.astype(np.float64))
    channels = np.arange(len(scales))
    if node.op_type in TRANSPOSED:
        # Each phase of the output is a separate channel, with the weights that reach it.
        geometry = geometry_of(source, node)
        weights = geometry.weights(weights.reshape(*weights.shape[:2], *geometry.kernel))
        scales, bias, real_bias, channels = map(geometry.of_outputs, (scales, bias, real_bias, channels))
    low, high = code_range(source, fragment.outputs[0])
    return FloatProduct(
        node=node,
        before=before,
        after=[other for other in after if other.op_type in _TRUNK],
        weights=weights,
        bias=bias,
        scales=scales,
        ends=ends,
        codes=code_range(source, fragment.inputs[0]),
        zero_points=zero_points,
        low=low,
        high=high,
        channels=channels,
        _real_bias=real_bias,
    )


def code_range(source: Source, tensor: str) -> tuple[int, int]:
    """Return the least and greatest code after Relu and Clip before QuantizeLinear, which is monotonic."""
    limits = np.iinfo(source.types[tensor])
    bounds: list[tuple[float, float]] = [(limits.min, limits.max)]
    node = source.producer.get(tensor)
    while node is not None and source.is_codes(node.input[0]) and node.op_type in (*_TRUNK, *TRANSPARENT, "Clip"):
        bounds.append(_numbers(source, node))
        node = source.producer.get(node.input[0])
    if node is not None and node.op_type == "QuantizeLinear":
        scale, zero_point = np.float32(source.constants[node.input[1]].item()), zero_point_of(source, node)
        node = source.producer.get(node.input[0])
        while node is not None and node.op_type in (*_TRUNK, *TRANSPARENT, *_CUTTING, "FusedConv"):
            ends = _numbers(source, node)
            bounds.append(tuple(float(np.rint(np.float32(end) / scale)) + zero_point for end in ends))
            node = source.producer.get(node.input[0]) if node.op_type != "FusedConv" else None
    low, high = -math.inf, math.inf
    for least, greatest in reversed(bounds):
        low, high = (min(max(code, least), greatest) for code in (low, high))
    return int(low), int(high)


def _numbers(source: Source, node: NodeProto) -> tuple[float, float]:
    """Return the bounds of an operator's results."""
    activation = attributes_of(node).get("activation", b"").decode() or node.op_type
    if activation == "Relu":
        return 0.0, math.inf
    if node.op_type == "Clip":
        least, greatest = (constant(source, node, at) for at in (1, 2))
        return -math.inf if least is None else least.item(), math.inf if greatest is None else greatest.item()
    if activation == "Clip":
        least, greatest = attributes_of(node)["activation_params"]
        return least, greatest
    return -math.inf, math.inf


def _around(fragment: Fragment, node: NodeProto) -> tuple[list[NodeProto], list[NodeProto]]:
    at = fragment.nodes.index(node)
    before, after = (
        [other for other in nodes if other.op_type not in (*QUANTISERS, *TRANSPARENT)]
        for nodes in (fragment.nodes[:at], fragment.nodes[at + 1 :])
    )
    return before, after


@refuses(
    "its input has another zero point than it was quantised with",
    "some code depends on the order in which ONNX Runtime adds float32 numbers",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_float_product(build: Build, fragment: Fragment) -> None:
    """Add the layers of a product whose codes are those of the integer sum, and of the max pooling around it."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    product, first_layer = read_float_product(source, fragment), len(build.graph.layers)
    node, given = product.node, build.places[start]
    input_offset, output_offset = code_offset(source.types[start]), code_offset(source.types[end])
    check_zero_point(build, node, given, product.zero_points[0] - input_offset)
    place = follow_trunk(build, product.before, Place(given.tensor, given.axes, source.shapes[start]), start)
    place = Place(place.tensor, place.axes, source.shapes[node.input[0]])
    is_pooled = any(other.op_type in POOLING for other in product.after)
    multiplier = product.ends[0] * product.scales / product.ends[1]
    result = add_convolution(
        build,
        node,
        place,
        product.weights,
        product.bias,
        multiplier,
        node.output[0] if is_pooled else end,
        end,
        low=product.low - output_offset,
        high=product.high - output_offset,
    )
    build.add_view(end, follow_trunk(build, product.after, result, end, end))
    # Codes that never occur in the network need not equal those of float32.
    bounds = (code - input_offset for code in product.codes)
    codes = np.clip(random_codes(build, given.tensor), *bounds).astype(np.int8)
    check_layers(build, fragment, first_layer, {given.tensor: codes})


# Lower a transposed convolution to a convolution of all phases, depth to space, and a crop where that is too large.


def check_transposed(source: Source, fragment: Fragment) -> None:
    """Leave a transposed convolution to the host unless its bytes are those of the integer sum."""
    try:
        read_float_product(source, fragment).check()
    except UnsupportedError as error:
        why = error.reason or "more than a product of codes with quantised weights stands in it"
        fragment.kind = Kind.HOST
        fragment.reason, fragment.remedy = f"ONNX Runtime computes it in float, and {why}", SPELL


@refuses(
    "some code depends on the order in which ONNX Runtime adds float32 numbers",
    "its result is moved before it is quantised",
    "its input has another zero point than it was quantised with",
    "ONNX Runtime's bytes are not those of the layer on some codes",
)
def lower_transposed(build: Build, fragment: Fragment) -> None:
    """Add the layers of a ConvTranspose whose codes are those of the integer sum."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    product, first_layer, graph = read_float_product(source, fragment), len(build.graph.layers), build.graph
    node, given, name = product.node, build.places[start], product.node.output[0]
    if product.after:
        raise UnsupportedError(f"{label(product.after[0])} stands between {label(node)} and QuantizeLinear")
    input_offset, output_offset = code_offset(source.types[start]), code_offset(source.types[end])
    check_zero_point(build, node, given, product.zero_points[0] - input_offset)
    place = follow_trunk(build, product.before, Place(given.tensor, given.axes, source.shapes[start]), start)
    place = Place(place.tensor, place.axes, source.shapes[node.input[0]])
    place = as_image(build, node, place)
    image_place(build, node, place)
    geometry = geometry_of(source, node)
    phases, (rows, columns) = len(geometry.phases), geometry.whole
    shape = rows // geometry.strides[0], columns // geometry.strides[1], len(product.weights)
    # With one phase the convolution's result is the output; without a crop that of depth to space is.
    is_cropped = geometry.whole != geometry.target
    wide = name if phases > 1 or is_cropped else end
    build.add_tensor(wide, shape, end)
    kernel = np.ascontiguousarray(product.weights.transpose(0, 2, 3, 1))
    graph.layers.append(
        Convolution(
            node.name,
            (place.tensor,),
            wide,
            weights=kernel,
            bias=np.ascontiguousarray(product.bias),
            multiplier=product.ends[0] * product.scales / product.ends[1],
            window=Window(kernel.shape[1:3], pads=geometry.pads),
            epilogue=CodeEpilogue(product.low - output_offset, product.high - output_offset),
            groups=geometry.groups,
        )
    )
    large, whole = wide, (rows, columns, shape[2] // phases)
    if phases > 1:
        large = build.own_name(f"{name} in whole") if is_cropped else end
        build.add_tensor(large, whole, end)
        moved = f"{node.name} phases", wide, large, shape, geometry.strides
        graph.layers.append(copies.depth_to_space(*moved, phases_first=geometry.phases_first))
    if is_cropped:
        build.add_tensor(end, (*geometry.target, whole[2]), end)
        pads = 0, 0, rows - geometry.target[0], columns - geometry.target[1]
        graph.layers.append(copies.crop(f"{node.name} rest", large, end, whole, pads))
    build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
    bounds = (code - input_offset for code in product.codes)
    codes = np.clip(random_codes(build, given.tensor), *bounds).astype(np.int8)
    check_layers(build, fragment, first_layer, {given.tensor: codes})


# Lower pointwise operators with a value for each channel: to a depthwise 1x1 convolution, where that gives every code
# of every channel, else to a copy with a table for each channel.
#
# A convolution with the weight w and the bias b computes ``m * (w * x + b)``, with a multiplier m of float32. A factor
# a and an offset o in steps of the result need ``m * w = a`` and ``m * b = o``: of 127 weights, some has a bias that
# comes near enough for all 256 codes, or there is none.

_WEIGHTS = range(1, 128)
#: Sums beyond it are not exact in float32.
_GREATEST = 1 << 23
_REMEDY = (
    "quantise the float model with `lutterfly quantize`, which spells it as what has an integer form, or use one value "
    "for all channels"
)


@refuses(
    f"no convolution gives the codes of some channel, as they lie on no line or are rounded in between, "
    f"and tables of channels take more than {MOST_PIECES:,} pieces"
)
def lower_of_channels(build: Build, fragment: Fragment) -> None:
    """Add the layer of pointwise operators with a value for each channel."""
    source, start, end = build.source, fragment.inputs[0], fragment.outputs[0]
    first_layer, node = len(build.graph.layers), _named(source, fragment)
    place = as_image(build, node, dataclasses.replace(build.places[start], shape=source.shapes[start]))
    shape = image_place(build, node, place)
    tables, steps = _tables(source, fragment)
    zero_points = build.graph.tensors[place.tensor].zero_point, quantisation(source, end)[1]
    bounds = int(tables.min()), int(tables.max())
    found = [_fitted(table, line, *zero_points, bounds) for table, line in zip(tables, steps, strict=True)]
    if None in found:
        build.add_tensor(end, shape, end)
        build.graph.layers.append(_looked_up(node, place.tensor, end, tables))
        build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
        check_layers(build, fragment, first_layer)
        return
    weights, biases, multipliers = zip(*found, strict=True)
    build.add_tensor(end, shape, end)
    build.graph.layers.append(
        Convolution(
            node.name,
            (place.tensor,),
            end,
            weights=np.array(weights, np.int8).reshape(-1, 1, 1, 1),
            bias=np.array(biases, np.int32),
            multiplier=np.array(multipliers, np.float32),
            window=Window((1, 1)),
            epilogue=CodeEpilogue(*bounds),
            groups=len(tables),
        )
    )
    build.add_view(end, Place(end, CHANNELS_FIRST, source.shapes[end]))
    check_layers(build, fragment, first_layer)


def _looked_up(node: NodeProto, source: str, end: str, tables: Int8) -> Arrange:
    """Return a copy with a table for each channel, int8[channels, 256]; channels with the same table are copied
    together."""
    kinds, kind_of = np.unique(tables, axis=0, return_inverse=True)
    pieces = [
        Selection(0, taken[0], len(taken), targets[0], table, step=taken.step, spread=targets.step)
        for at, table in enumerate(kinds)
        for targets, taken in channel_runs(*[np.flatnonzero(kind_of.reshape(-1) == at)] * 2)
    ]
    if len(pieces) > MOST_PIECES:
        raise UnsupportedError(
            f"no depthwise convolution gives the codes of {label(node)}, and it has {len(kinds)} tables for "
            f"{len(tables)} channels, in {len(pieces)} pieces of at most {MOST_PIECES}",
            _REMEDY,
        )
    return Arrange(node.name, (source,), end, "tables of channels", tuple(pieces), window=Window((1, 1)))


def _named(source: Source, fragment: Fragment) -> NodeProto:
    """Return the name of the first operator with a value for each channel."""
    constants = source.constants
    return next(
        node
        for node in fragment.nodes
        if any(name in constants and constants[name].size > 1 for name in node.input) or node is fragment.nodes[-1]
    )


def _tables(source: Source, fragment: Fragment) -> tuple[Int8, Float64]:
    """Run ONNX Runtime on every code in every channel: return int8[channels, 256], and the float values before
    quantisation in steps of the result.
    """
    start, end, last = fragment.inputs[0], fragment.outputs[0], fragment.nodes[-1]
    channels, *sizes = source.shapes[start][1:]
    shape = (1, channels, *(256 if at == len(sizes) - 1 else 1 for at in range(len(sizes))))
    session = open_part(expose(cut(source, fragment.nodes, {start: shape}, [end]), last.input[:1]))
    codes = np.broadcast_to(from_codes(CODES, source.types[start]), shape)
    results, values = session.run([end, last.input[0]], {start: np.ascontiguousarray(codes)})
    steps = values.astype(np.float64) / float(source.constants[last.input[1]].item())
    return to_codes(results.reshape(channels, 256)), steps.reshape(channels, 256)


def _fitted(
    table: Int8, steps: Float64, source_zero: int, target_zero: int, bounds: tuple[int, int]
) -> tuple[int, int, np.float32] | None:
    """Find weight, bias and multiplier that give a table, int8[256], within the bounds of all tables; None if there are
    none.

    ``steps``, float64[256], are on a line where they are not clipped.
    """
    if (table == table[0]).all():
        return 0, int(table[0]) - target_zero, np.float32(1)
    inner = np.flatnonzero((table > table.min()) & (table < table.max()))
    # Two neighbouring codes have no code between them, so the line's own value is taken.
    first, last = (inner[0], inner[-1]) if len(inner) > 1 else (at := int(np.diff(table != table[0]).argmax()), at + 1)
    inputs = CODES.astype(np.int64) - source_zero
    slope = (steps[last] - steps[first]) / (last - first)
    if not np.isfinite(slope) or not slope:
        return None
    offset = steps[first] - slope * inputs[first]
    for size in _WEIGHTS:
        weight, bias = int(np.sign(slope)) * size, round(offset / slope * np.sign(slope) * size)
        multiplier = np.float32(abs(slope) / size)
        if abs(bias) > _GREATEST:
            break
        sums = (inputs * weight + bias).astype(np.int32)
        if np.array_equal(_requantised(sums, multiplier, target_zero, bounds), table):
            return weight, bias, multiplier
    return None


def _requantised(sums: Int32, multiplier: np.float32, zero_point: int, bounds: tuple[int, int]) -> Int8:
    parameters = pack_parameters(np.zeros(1, np.int32), np.array([multiplier]))
    return requantise(sums[:, None], parameters, zero_point, *bounds)[:, 0]
