"""Chains of operators on one activation, between a quantiser and the integers that it depends on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper, numpy_helper

from ...model.runtime import plain_session
from ..fragments import AVERAGE, LAYOUT, MAX_POOLING, TRANSPARENT, label
from ..source import ModelError
from .network import MeasuredNetwork, Quantiser
from .products import PRODUCTS

#: Operators that are monotone in their activation, roundings included.
MONOTONE = (*TRANSPARENT, *("Add", "BatchNormalization", "Ceil", "Clip", "Div", "Floor", "Mul", "Neg", "Relu", "Sub"))
POWERS = (
    "use scales that are powers of two, which round nothing (scaling_const=1.0 for binary weights, "
    "restrict_scaling_type=POWER_OF_TWO)"
)
_STEPS = (*LAYOUT, *MAX_POOLING)
#: Number of elements that are evaluated at once.
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Chain:
    """The operators after a tensor, up to a quantiser.

    Attributes
    ----------
    root : str
        The tensor before the first operator.
    product : NodeProto or None
        The node that computes the root, if it is a product of a quantised activation.
    nodes : list of NodeProto
    """

    root: str
    product: NodeProto | None
    nodes: list[NodeProto]

    @property
    def steps(self) -> list[NodeProto]:
        """The layout operators and poolings of the chain, in order."""
        return [node for node in self.nodes if node.op_type in _STEPS]


def find_chain(network: MeasuredNetwork, coded: Collection[str], name: str) -> Chain:
    """Follow an activation back to a coded tensor, a product of one, or a node with several activations or none."""
    nodes: list[NodeProto] = []
    while name not in coded:
        node = network.producer.get(name)
        if node is None:
            break
        dynamic = network.dynamic_inputs(node)
        if node.op_type in PRODUCTS and dynamic == [node.input[0]] and dynamic[0] in coded:
            return Chain(name, node, nodes[::-1])
        if node.op_type in PRODUCTS or len(dynamic) != 1 or len(node.output) != 1:
            break
        nodes.append(node)
        name = dynamic[0]
    return Chain(name, None, nodes[::-1])


def constant_operands(network: MeasuredNetwork, nodes: Collection[NodeProto]) -> dict[str, np.ndarray]:
    """Return the constants that nodes read."""
    return {name: network.constants[name] for node in nodes for name in node.input if name in network.constants}


class Evaluator:
    """Evaluation of a chain in ONNX Runtime, on any values of each channel.

    Parameters
    ----------
    network : MeasuredNetwork
    chain : Chain
        The chain; its pooling is left out, as it chooses among such values.
    quantiser : Quantiser
        The last operator.
    channels : int
        Number of channels of the root, at axis 1.

    Raises
    ------
    ModelError
        If a result depends on more than a value and its channel.
    """

    def __init__(self, network: MeasuredNetwork, chain: Chain, quantiser: Quantiser, channels: int):
        self._place = f"{network.name}: {label(quantiser.node)}"
        self._channels, self._rank = channels, len(network.shapes[chain.root])
        self._feed, self._result = chain.root, quantiser.node.output[0]
        self._entering = quantiser.node.input[0]
        nodes = self._per_channel(network, chain)
        spelled, constants = quantiser.spell(self._result)
        known = constant_operands(network, [*nodes, *spelled])
        known |= {tensor.name: numpy_helper.to_array(tensor) for tensor in constants}
        # Inputs of each pooling, which show whether the operators before it rise or fall.
        self.pooled = [node.output[0] for node in nodes if node.op_type == "Identity" and node.name in self._pools]
        shown = [self._result, *self.pooled, *([] if self._entering == self._feed else [self._entering])]
        shape = [None, channels, *[1] * (self._rank - 2)]
        model = network.measured.part(
            [*nodes, *spelled],
            {self._feed: shape},
            dict.fromkeys(shown),
            [numpy_helper.from_array(value, name) for name, value in known.items()],
        )
        self._session = plain_session(model)

    def _per_channel(self, network: MeasuredNetwork, chain: Chain) -> list[NodeProto]:
        """Return the operators with one position for each channel; those that only move values become Identity."""
        self._pools: set[str] = set()
        nodes, moved = [], None
        for node in chain.nodes:
            if node.op_type in AVERAGE:
                raise ModelError(
                    f"{self._place}: {label(node)} in front of it must average quantised numbers, not results of a "
                    "product; put a QuantIdentity in front of that"
                )
            if node.op_type not in _STEPS:
                wide = [name for name, value in constant_operands(network, [node]).items() if value.size > 1]
                if moved is not None and wide:
                    raise ModelError(
                        f"{self._place}: {label(node)} must have one value {wide[0]!r} for all channels, not several, "
                        f"as {label(moved)} moves channels before; put it in front"
                    )
                nodes.append(node)
                continue
            before, after = network.shapes[node.input[0]], network.shapes[node.output[0]]
            if node.op_type in MAX_POOLING:
                if moved is not None:
                    raise ModelError(f"{self._place}: {label(node)} must stand in front of {label(moved)}")
                self._pools.add(node.name)
            elif moved is None and np.prod(before) == np.prod(after) == self._channels == after[1]:
                shape = numpy_helper.from_array(np.array([-1, self._channels, *[1] * (len(after) - 2)]))
                name = f"{node.output[0]} shape"
                nodes.append(helper.make_node("Constant", [], [name], value=shape))
                nodes.append(helper.make_node("Reshape", [node.input[0], name], [node.output[0]]))
                continue
            else:
                moved = node
            nodes.append(helper.make_node("Identity", [node.input[0]], [node.output[0]], node.name))
        return nodes

    def run(self, values: npt.NDArray[np.float32]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the quantiser's results, and the inputs of each pooling: float32[values, channels].

        Parameters
        ----------
        values : float32[values, channels]

        Raises
        ------
        ModelError
            If an operator mixes channels or positions.
        """
        result, *pooled = self._run(values, [self._result, *self.pooled])
        return result, pooled

    def entering(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the quantiser's inputs for values float32[values, channels]."""
        return values if self._entering == self._feed else self._run(values, [self._entering])[0]

    def _run(self, values: npt.NDArray[np.float32], names: list[str]) -> list[np.ndarray]:
        parts: list[list[np.ndarray]] = []
        size = max(_AT_ONCE // self._channels, 1)
        for start in range(0, len(values), size):
            part = values[start : start + size]
            feed = {self._feed: part.reshape(*part.shape, *[1] * (self._rank - 2))}
            parts.append([self._shaped(array, part.shape) for array in self._session.run(names, feed)])
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def _shaped(self, array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        if array.size != shape[0] * shape[1]:
            raise ModelError(
                f"{self._place} must depend on each channel's value alone, and operators in front of it have a "
                "value for each position; give them one for each channel"
            )
        return array.reshape(shape)


def require_monotone(network: MeasuredNetwork, chain: Chain, place: str) -> None:
    """Refuse operators that are not monotone.

    Raises
    ------
    ModelError
    """
    for node in chain.nodes:
        divides = node.op_type == "Div" and node.input[1] in network.shapes
        if node.op_type not in (*MONOTONE, *_STEPS) or divides:
            raise ModelError(
                f"{place}: {label(node)} in front of it must rise or fall with its input (batch normalisation, Relu, "
                f"products and sums with constants), as results of the product are not exact in float32; {POWERS}"
            )


def is_scalar(network: MeasuredNetwork, nodes: Collection[NodeProto]) -> bool:
    """Return whether all constants of nodes are single values; those of layout operators are shapes and do not
    count."""
    pointwise = [node for node in nodes if node.op_type not in _STEPS]
    return all(value.size == 1 for value in constant_operands(network, pointwise).values())
