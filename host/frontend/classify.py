"""Decide for every fragment whether the accelerator can run it, and if not, why."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from onnx import NodeProto

from ..graph.tabulate import code_offset
from .fragments import (
    ADDITION,
    AVERAGE,
    CHOICE,
    CONCAT,
    CROP,
    EXTREMES,
    FLOAT_PRODUCTS,
    LAYOUT,
    LINEAR,
    MOVES,
    MULTIPLICATION,
    NORMALISATION,
    PAD,
    POINTWISE,
    POOLING,
    PRODUCTS,
    QUANTISERS,
    SLICE,
    SUBTRACTION,
    TRANSPARENT,
    TRANSPOSED,
    Fragment,
    Kind,
    label,
    written_operator,
)
from .parse import PER_TENSOR
from .source import ATTEND, FOLD, NORMALISE, REWRITE, ModelError, Source, UnsupportedError, size

# Fragments of pointwise operators with a value for each channel.


def is_of_channels(source: Source, fragment: Fragment) -> bool:
    """Return whether a fragment is a function of the code and the channel of each element of one feature map."""
    shape = source.shapes.get(fragment.inputs[0], ()) if len(fragment.inputs) == 1 else ()
    if len(shape) not in (3, 4) or any(source.shapes.get(name) != shape for name in fragment.outputs):
        return False
    inner = [node for node in fragment.nodes if node.op_type not in QUANTISERS]
    if any(node.op_type not in (*POINTWISE, NORMALISATION) for node in inner):
        return False
    return all(_fits(source, node, shape) for node in inner) and any(_has_channels(source, node) for node in inner)


def _fits(source: Source, node: NodeProto, shape: tuple[int, ...]) -> bool:
    """Return whether operands are scalars, or have a value for each channel, and no shape changes."""
    if any(source.shapes.get(name) != shape for name in (*source.dynamic_inputs(node), *node.output)):
        return False
    if node.op_type == NORMALISATION:
        return all(name in source.constants for name in node.input[1:])
    wanted = (shape[1], *[1] * (len(shape) - 2))
    for name in node.input:
        found = source.constants[name].shape if name in source.constants else ()
        if math.prod(found) != 1 and (*[1] * (len(shape) - len(found)), *found) != (1, *wanted):
            return False
    return True


def _has_channels(source: Source, node: NodeProto) -> bool:
    return node.op_type == NORMALISATION or any(
        source.constants[name].size > 1 for name in node.input if name in source.constants
    )


# Operators that move elements of a feature map, and compute nothing.


def is_move(source: Source, node: NodeProto) -> bool:
    """Return whether an operator moves elements to other pixels, repeats them or leaves some out."""
    return node.op_type in MOVES or is_crop(source, node)


def is_layout(source: Source, node: NodeProto) -> bool:
    """Return whether an operator reorders, reshapes or selects elements of a tensor that need not be an image."""
    return node.op_type in LAYOUT or is_choice(source, node)


def is_choice(source: Source, node: NodeProto) -> bool:
    """Return whether an operator selects elements by constant indices."""
    if node.op_type not in CHOICE:
        return False
    return node.input[0] in source.shapes and node.input[1] in source.constants


def is_crop(source: Source, node: NodeProto) -> bool:
    """Return whether an operator selects neighbouring rows and columns of a feature map with channels in front."""
    if node.op_type not in CROP:
        return False
    before, after = (source.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
    steps = source.constants.get(node.input[4]) if len(node.input) > 4 and node.input[4] else None
    starts = source.constants.get(node.input[1]) if len(node.input) > 1 else None
    if len(before) not in (3, 4) or before[:2] != after[:2] or before == after or starts is None:
        return False
    return steps is None or bool((steps == 1).all())


# Tensors of 16-bit codes: pointwise operators between 8-bit codes may have them, quantised products may not.
#
# QuantizeLinear to 16 bits and DequantizeLinear of them are pointwise operators themselves: all that is between two
# tensors of 8-bit codes is one table, however it is quantised on the way.

NARROW = "quantise to int8 here (activation_type=QuantType.QInt8)"
REMEDY = f"only pointwise operators on one activation may have 16-bit tensors around them: {NARROW}"
#: The operator with which ONNX Runtime replaces a product of quantised weights with activations without 8-bit codes.
_WEIGHTS_ALONE = "MatMulNBits"
#: Operators that ONNX Runtime may leave between a product and its quantised ends.
_BESIDE = (*LAYOUT, *POOLING, *TRANSPARENT, "Relu", "Clip")


def is_wide(source: Source, tensor: str) -> bool:
    """Return whether a tensor is an activation of int16 or uint16 codes."""
    return source.types.get(tensor) in (np.int16, np.uint16)


def wide_tensor(source: Source, fragment: Fragment) -> str:
    """Return type and name of a fragment's first tensor of 16-bit codes, for messages, or an empty string."""
    names = [name for node in fragment.nodes for name in (*source.dynamic_inputs(node), *node.output)]
    return next((shown(source, name) for name in names if is_wide(source, name)), "")


def wide_between(source: Source, fragment: Fragment, one: NodeProto, other: NodeProto) -> str:
    """Return type and name of the first tensor of 16-bit codes between two nodes of a fragment, or an empty string."""
    first, last = (node for node in fragment.nodes if node in (one, other))
    after, ahead = set(first.output), set(source.dynamic_inputs(last))
    for node in fragment.nodes:
        after |= set(node.output) if after.intersection(node.input) else set()
    for node in reversed(fragment.nodes):
        ahead |= set(source.dynamic_inputs(node)) if ahead.intersection(node.output) else set()
    return next((shown(source, name) for name in after & ahead if is_wide(source, name)), "")


def shown(source: Source, tensor: str) -> str:
    """Return type and name of a tensor."""
    return f"the {source.types[tensor]} tensor {tensor!r}"


def check_wide(source: Source) -> None:
    """Check that quantised products read and compute 8-bit codes.

    Raises
    ------
    ModelError
        If one reads or computes a tensor of 16-bit codes, for which ONNX Runtime has no integer kernel.
    """
    for node in source.nodes:
        if not _is_quantised(source, node):
            continue
        found = [f"it reads {shown(source, name)}" for name in _codes_ahead(source, node) if is_wide(source, name)]
        found += [f"it makes {shown(source, name)}" for name in _codes_after(source, node) if is_wide(source, name)]
        if found:
            raise ModelError(
                f"{source.name}: ONNX Runtime computes {label(node)} in float, because {found[0]}; {REMEDY}"
            )


def _is_quantised(source: Source, node: NodeProto) -> bool:
    """Return whether a node is a product with quantised weights."""
    constants = [name for name in node.input if name in source.constants]
    if node.op_type not in FLOAT_PRODUCTS:
        return node.op_type == _WEIGHTS_ALONE
    return any(
        other.op_type == "DequantizeLinear" and other.output[0] in constants for other in source.model.graph.node
    )


def _codes_ahead(source: Source, node: NodeProto) -> Iterator[str]:
    """Yield the quantised tensors that the activations of a product come from."""
    for name in source.dynamic_inputs(node):
        producer = source.producer.get(name)
        if producer is not None and producer.op_type == "DequantizeLinear":
            yield producer.input[0]
        elif producer is not None and producer.op_type in _BESIDE:
            yield from _codes_ahead(source, producer)


def _codes_after(source: Source, node: NodeProto) -> Iterator[str]:
    """Yield the quantised tensors that the result of a product becomes."""
    for reader in source.consumers.get(node.output[0], []):
        if reader.op_type == "QuantizeLinear":
            yield reader.output[0]
        elif reader.op_type in _BESIDE:
            yield from _codes_after(source, reader)


# Scales and zero points of activations: their positions among operands, and those of a tensor of codes.

#: Positions of the scales of activations among operands, the result's last; each follows its input, and its zero point
#: follows it.
_SCALES = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 6),
    "QGemm": (1, 7),
    "QLinearMatMul": (1, 6),
    "QLinearSigmoid": (1, 3),
    "QLinearLeakyRelu": (1, 3),
    "QLinearAdd": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QLinearWhere": (2, 5, 7),
    "QLinearAveragePool": (1, 3),
    "QLinearGlobalAveragePool": (1, 3),
    "QLinearSoftmax": (1, 3),
}


def check_scales(source: Source, fragment: Fragment) -> None:
    """Check the scales and zero points that a fragment's nodes name.

    Raises
    ------
    ModelError
        If one is computed, per channel or not positive.
    """
    for node in fragment.nodes:
        for kind, name in quantisation_operands(node):
            constant = source.constants.get(name)
            if constant is None:
                raise ModelError(
                    f"{source.name}: the {kind} {name!r} of {label(node)} must be a constant; quantise "
                    "the model statically"
                )
            if constant.size != 1:
                raise ModelError(
                    f"{source.name}: the {kind} {name!r} of {label(node)} must be one value, not "
                    f"{constant.size}; {PER_TENSOR}"
                )
            if kind == "scale" and not (np.isfinite(constant).all() and (constant > 0).all()):
                raise ModelError(
                    f"{source.name}: the scale {name!r} of {label(node)} must be positive, not "
                    f"{constant.item()}; quantise the model again"
                )


def _scale_positions(node: NodeProto) -> tuple[int, ...]:
    if node.op_type == "QLinearConcat":
        return (*range(3, len(node.input), 3), 0)
    return _SCALES.get(node.op_type, ())


def quantisation_operands(node: NodeProto) -> list[tuple[str, str]]:
    """Return ("scale" or "zero point", tensor) for every scale and zero point of an activation among a node's
    operands."""
    found = []
    for position in _scale_positions(node):
        for kind, at in (("scale", position), ("zero point", position + 1)):
            if at < len(node.input) and node.input[at]:
                found.append((kind, node.input[at]))
    return found


def quantisation(source: Source, tensor: str) -> tuple[float, int]:
    """Return scale and zero point, as an int8 code, of a tensor of codes.

    They are operands of the node that computes the tensor; or, for operators that do not change them (MaxPool, Reshape
    ...) and for inputs, of other nodes along the way.
    """
    offset = code_offset(source.types[tensor])
    name, seen, unknown, computed_by = tensor, set(), (1.0, -offset), None
    while name in source.producer and name not in seen:
        seen.add(name)
        node = source.producer[name]
        computed_by = source.function(node)
        if computed_by is not None:
            unknown = 1.0, computed_by.result_zero_point
            break
        operands = quantisation_operands(node)
        if operands:
            return _values(source, node, _scale_positions(node)[-1], offset)
        name = node.input[0]
    frontier = [name]
    while frontier:
        name = frontier.pop()
        for node in source.consumers.get(name, []):
            function = source.function(node)
            if function is not None:
                unknown = unknown if computed_by else (1.0, function.zero_point)
                continue
            for position in _scale_positions(node):
                if position > 0 and node.input[position - 1] == name:
                    return _values(source, node, position, offset)
            frontier += [output for output in node.output if source.is_codes(output)]
    return unknown


def _values(source: Source, node: NodeProto, position: int, offset: int) -> tuple[float, int]:
    zero = node.input[position + 1] if position + 1 < len(node.input) else ""
    code = int(source.constants[zero].item()) if zero else 0
    return float(source.constants[node.input[position]].item()), code - offset


#: Operators that determine the kind of a fragment, and operators that may be in a fragment with one of them.
_SPECIAL = (
    (Kind.AVERAGE, AVERAGE, (*QUANTISERS, *TRANSPARENT, *LAYOUT, *POOLING)),
    (Kind.CONCAT, CONCAT, POINTWISE),
    (Kind.SLICE, SLICE, POINTWISE),
    (Kind.PAD, PAD, POINTWISE),
)
#: The kind of each operator on two activations that is a layer.
_OF_TWO = (
    dict.fromkeys(ADDITION, Kind.ADDITION)
    | dict.fromkeys(SUBTRACTION, Kind.SUBTRACTION)
    | dict.fromkeys(MULTIPLICATION, Kind.MULTIPLICATION)
    | dict.fromkeys(EXTREMES, Kind.EXTREME)
)
_REWRITTEN = ("GRU", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization", "RNN")
_REMEDIES = {"Attention": ATTEND, NORMALISATION: FOLD} | dict.fromkeys(
    (*_REWRITTEN, "RMSNormalization", "Softmax"), REWRITE
)


def classify(source: Source, fragments: list[Fragment]) -> None:
    """Set ``kind`` and ``reason`` of every fragment.

    Raises
    ------
    ModelError
        If the scale or zero point of an activation is computed, per channel or not positive.
    """
    for fragment in fragments:
        check_scales(source, fragment)
        fragment.kind, fragment.reason = _judge(source, fragment)


def _judge(source: Source, fragment: Fragment) -> tuple[Kind, str]:
    bare = [name for name in [*fragment.inputs, *fragment.outputs] if not source.is_codes(name)]
    if bare:
        return Kind.HOST, f"{bare[0]!r} is {'of 16 bits' if is_wide(source, bare[0]) else 'not quantised'}"
    if any(source.function(node) for node in fragment.nodes):
        return Kind.FUNCTION, ""
    several = (
        len(fragment.outputs) != 1 and f"it computes {len(fragment.outputs)} tensors ({_listed(fragment.outputs)})"
    )
    if any(node.op_type in LINEAR for node in fragment.nodes):
        is_of_two = fragment.main.op_type == "QLinearMatMul" and len(source.dynamic_inputs(fragment.main)) > 1
        kind = Kind.MATRIX_PRODUCT if is_of_two else Kind.LINEAR
        return (Kind.HOST, several) if several else (kind, "")
    if any(node.op_type in TRANSPOSED for node in fragment.nodes):
        return (Kind.HOST, several) if several else (Kind.TRANSPOSED, "")
    for kind, operators, companions in _SPECIAL:
        if any(node.op_type in operators and not is_crop(source, node) for node in fragment.nodes):
            return _judge_special(source, fragment, kind, operators, companions)
    if several:
        return Kind.HOST, several
    if len(fragment.inputs) > 1:
        return _judge_combination(source, fragment)
    if is_of_channels(source, fragment):
        return Kind.OF_CHANNELS, ""
    known = (*POINTWISE, *POOLING)
    foreign = [
        node
        for node in fragment.nodes
        if node.op_type not in known and not is_layout(source, node) and not is_move(source, node)
    ]
    if foreign:
        return _refuse_foreign(fragment, foreign[0])
    if _is_layout(source, fragment):
        return Kind.LAYOUT, ""
    for node in fragment.nodes:
        problem = _pointwise_problem(source, node) if node.op_type in POINTWISE else ""
        if problem:
            fragment.cause = node
            return Kind.HOST, problem
    return Kind.REGION, ""


def _refuse_foreign(fragment: Fragment, node: NodeProto) -> tuple[Kind, str]:
    fragment.cause, fragment.remedy = node, _REMEDIES.get(written_operator(node), fragment.remedy)
    return Kind.HOST, f"the accelerator has no {_foreign(node)}"


def _is_foreign(source: Source, node: NodeProto) -> bool:
    """Return whether an operator is part of no kind of layer, in any fragment."""
    known = (*POINTWISE, *POOLING, *(operator for _, operators, _ in _SPECIAL for operator in operators))
    return node.op_type not in known and not is_layout(source, node) and not is_move(source, node)


def _foreign(node: NodeProto) -> str:
    """Return the name of an operator that no layer computes, for messages: as the user wrote it, unless ONNX Runtime
    has fused several."""
    if node.op_type in CHOICE:
        return f"{node.op_type} by indices that are computed"
    written = written_operator(node)
    is_made = written != node.op_type and written in (*POINTWISE, *POOLING, *LAYOUT)
    return f"{node.op_type}, which ONNX Runtime computes for {written} and its neighbours" if is_made else written


def _judge_special(
    source: Source, fragment: Fragment, kind: Kind, operators: tuple[str, ...], companions: tuple[str, ...]
) -> tuple[Kind, str]:
    """Return the kind of a fragment with an operator that makes it ``kind``, or why another operator in it prevents
    that."""
    special = [node for node in fragment.nodes if node.op_type in operators]
    wide = wide_tensor(source, fragment)
    if kind is Kind.AVERAGE and wide:
        fragment.cause, fragment.remedy = special[0], REMEDY
        return Kind.HOST, f"ONNX Runtime averages {wide} in float"
    combined = any(len(source.dynamic_inputs(node)) > 1 for node in fragment.nodes)
    if kind is Kind.AVERAGE and combined and any(node.op_type == "Sqrt" for node in fragment.nodes):
        fragment.cause, fragment.remedy = special[0], NORMALISE
        return Kind.HOST, f"{label(special[0])} begins a normalisation by what it reads"
    foreign = next((node for node in fragment.nodes if _is_foreign(source, node)), None)
    if foreign is not None:
        return _refuse_foreign(fragment, foreign)
    for node in [*special[1:], *(node for node in fragment.nodes if node.op_type not in (*operators, *companions))]:
        between = wide_between(source, fragment, special[0], node)
        fragment.remedy = NARROW if between else "put QuantizeLinear and DequantizeLinear between them"
        ends = f"tensors of 8 bits, which {between} between them is not" if between else "quantised tensors"
        return Kind.HOST, f"{label(node)} stands with {label(special[0])} between {ends}"
    # The result of a single activation is a function of each of its elements, in any branches.
    is_of_one = kind in (Kind.SLICE, Kind.PAD) and len(fragment.inputs) == 1
    for node in fragment.nodes:
        if node is not special[0] and len(source.dynamic_inputs(node)) > 1 and not is_of_one:
            return Kind.HOST, f"{label(node)} combines activations with {label(special[0])}"
        problem = _pointwise_problem(source, node) if node.op_type in companions and companions is POINTWISE else ""
        if problem:
            return Kind.HOST, problem
    if kind is not Kind.SLICE and len(fragment.outputs) != 1:
        return Kind.HOST, f"it computes {len(fragment.outputs)} tensors ({_listed(fragment.outputs)})"
    return kind, ""


def _judge_combination(source: Source, fragment: Fragment) -> tuple[Kind, str]:
    """Return the kind of a fragment that combines several activations: an operator on two, or perhaps a table of
    one."""
    first, *after = (node for node in fragment.nodes if node.op_type not in (*QUANTISERS, *TRANSPARENT))
    # ONNX's own operators read codes as integers, without their scales.
    quantised = first.domain == "com.microsoft" or not source.is_codes(first.output[0])
    is_of_two = len(fragment.inputs) == 2 and quantised and {node.op_type for node in after} <= {"Relu", "Clip"}
    if first.op_type in _OF_TWO and is_of_two and not wide_tensor(source, fragment):
        return _OF_TWO[first.op_type], ""
    fragment.cause = next((node for node in fragment.nodes if len(source.dynamic_inputs(node)) > 1), None)
    pointwise = all(node.op_type in POINTWISE and not _pointwise_problem(source, node) for node in fragment.nodes)
    if pointwise:
        return Kind.COMBINATION, ""
    if fragment.cause is not None and written_operator(fragment.cause) in _REMEDIES:
        return _refuse_foreign(fragment, fragment.cause)
    fragment.remedy = combines(source, fragment).remedy
    return Kind.HOST, combines(source, fragment).reason


def combines(source: Source, fragment: Fragment) -> UnsupportedError:
    """Return why a fragment cannot be a table."""
    reason = f"it combines {len(fragment.inputs)} activations ({_listed(fragment.inputs)})"
    wide = wide_tensor(source, fragment)
    if wide and any(node.op_type in ADDITION for node in fragment.nodes):
        return UnsupportedError(f"{reason}, and ONNX Runtime computes with {wide} in float", REMEDY)
    return UnsupportedError(reason)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _is_layout(source: Source, fragment: Fragment) -> bool:
    inner = [node for node in fragment.nodes if node.op_type not in QUANTISERS]
    if any(node.op_type not in TRANSPARENT and not is_layout(source, node) for node in inner):
        return False
    ends = [node for node in fragment.nodes if node.op_type in QUANTISERS]
    if not ends:
        return True
    if not inner or source.types[fragment.inputs[0]] != source.types[fragment.outputs[0]]:
        return False
    values = [[source.constants[name].tolist() for name in node.input[1:] if name] for node in ends]
    return all(value == values[0] for value in values)


def _pointwise_problem(source: Source, node: NodeProto) -> str:
    """Return why the result for a code would depend on more than the code, or an empty string."""
    operands = node.input if node.op_type not in QUANTISERS else node.input[:1]
    for name in operands:
        constant = source.constants.get(name)
        if constant is not None and constant.size != 1:
            return f"operand {name!r} of {label(node)} has {constant.size} values, and only scalars can be tabulated"
    names = [*source.dynamic_inputs(node), *node.output]
    if len({size(source.shapes[name]) for name in names if name in source.shapes}) > 1:
        return f"{label(node)} changes the shape"
    return ""


# The partition: a head on the host, a middle on the accelerator, a tail on the host.


def partition(source: Source, fragments: list[Fragment]) -> list[Fragment]:
    """Choose the fragments that run on the accelerator.

    Fragments that it cannot run belong to the head or the tail, together with all fragments before or after them.
    Layout operators at the ends stay on the host.

    Returns
    -------
    list of Fragment
        The middle, in order of execution.

    Raises
    ------
    ModelError
        If a fragment between two layers of the accelerator cannot run there, or no fragment can.
    """
    graph = _Order(fragments)
    products = [fragment for fragment in fragments if fragment.kind in PRODUCTS]
    anchors = products or [fragment for fragment in fragments if fragment.kind not in (Kind.LAYOUT, Kind.HOST)]
    host: set[Fragment] = set()
    for fragment in fragments:
        if fragment.kind is not Kind.HOST:
            continue
        before = [anchor for anchor in anchors if anchor in graph.above[fragment]]
        after = [anchor for anchor in anchors if anchor in graph.below[fragment]]
        if before and after:
            raise ModelError(
                f"{source.name}: {fragment.label} between {before[-1].label} and {after[0].label} is not "
                f"supported: {fragment.reason}; {fragment.remedy}"
            )
        host |= {fragment} | (graph.above[fragment] if after else graph.below[fragment])
    middle = [fragment for fragment in fragments if fragment not in host]
    middle = [
        fragment
        for fragment in middle
        if fragment.kind is not Kind.LAYOUT or _leads_to_layer(graph.below[fragment], host)
    ]
    if not any(fragment.kind is not Kind.LAYOUT for fragment in middle):
        reasons = dict.fromkeys(
            f"{fragment.label}: {fragment.reason}" for fragment in fragments if fragment.kind is Kind.HOST
        )
        why = f" ({'; '.join(reasons)})" if reasons else ", as nothing but the layout of codes changes"
        wide = next(filter(None, (wide_tensor(source, fragment) for fragment in fragments)), "")
        raise ModelError(
            f"{source.name}: no layer can run on the accelerator{why}; it needs a quantised convolution, matrix "
            f"product or pointwise operator{wide and f' between tensors of 8 bits, which {wide} is not; {NARROW}'}"
        )
    return middle


def _leads_to_layer(below: set[Fragment], host: set[Fragment]) -> bool:
    return any(fragment.kind is not Kind.LAYOUT and fragment not in host for fragment in below)


class _Order:
    """The fragments that each fragment depends on (above), and those that depend on it (below)."""

    def __init__(self, fragments: list[Fragment]):
        maker = {name: fragment for fragment in fragments for name in fragment.outputs}
        self.above: dict[Fragment, set[Fragment]] = {}
        self.below: dict[Fragment, set[Fragment]] = {fragment: set() for fragment in fragments}
        for fragment in fragments:
            direct = {maker[name] for name in fragment.inputs if name in maker}
            self.above[fragment] = direct.union(*(self.above[other] for other in direct))
            for other in self.above[fragment]:
                self.below[other].add(fragment)
