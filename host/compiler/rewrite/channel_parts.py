"""Channel parts: which channels of which tensors move together, by what the layers that touch them say of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....golden.elements import CODE_BITS
from ...graph import ChannelRule, Graph, Tensor

Order = npt.NDArray[np.int64]


@dataclass(eq=False)
class Part:
    """Channels that lie side by side and move among themselves, in one tensor or in several."""

    size: int
    is_fixed: bool = False
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = np.arange(self.size)


class Parts:
    """Of which parts the channels of each tensor are, one after the other."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Part]] = {}
        self._same: dict[Part, Part] = {}

    def __getitem__(self, name: str) -> list[Part]:
        return [self._representative(part) for part in self._parts[name]]

    def __setitem__(self, name: str, parts: list[Part]) -> None:
        self._parts[name] = parts

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def _representative(self, part: Part) -> Part:
        while part in self._same:
            part = self._same[part]
        return part

    def tie(self, *names: str) -> None:
        """Channels of these tensors are in the same order."""
        first = self[names[0]]
        for name in names[1:]:
            other = self[name]
            if [part.size for part in first] != [part.size for part in other]:
                self.fix(names[0])
                self.fix(name)
                continue
            for one, same in zip(self._parts[names[0]], self._parts[name], strict=True):
                self._join(one, same)

    def _join(self, one: Part, same: Part) -> None:
        """Let one part stand for both."""
        # Looked up for each pair: a part may be in a tensor twice, and what stands for it changes with the first.
        one, same = self._representative(one), self._representative(same)
        if one is not same:
            one.is_fixed |= same.is_fixed
            self._same[same] = one

    def fix(self, name: str) -> None:
        """Channels of a tensor stay where they are."""
        for part in self[name]:
            part.is_fixed = True

    def free(self) -> list[Part]:
        """All that may move, each once."""
        return [
            part for part in dict.fromkeys(part for name in self._parts for part in self[name]) if not part.is_fixed
        ]

    def order(self, name: str) -> Order:
        """Which of its channels lies at each place of a tensor: int64[channels]."""
        orders, first = [], 0
        for part in self[name]:
            orders.append(part.order + first)
            first += part.size
        return np.concatenate(orders)

    def has_moved(self, name: str) -> bool:
        """Whether channels of a tensor lie in another order than before."""
        return bool((self.order(name) != np.arange(sum(part.size for part in self[name]))).any())

    def places(self, part: Part, name: str) -> list[int]:
        """The first channel of each place that a part has in a tensor."""
        found, first = [], 0
        for other in self[name]:
            if other is part:
                found.append(first)
            first += other.size
        return found


def parts_of(graph: Graph) -> Parts:
    """Of which parts all tensors are, by the layers that touch them."""
    parts = Parts()
    for name in graph.inputs:
        parts[name] = [Part(graph.tensors[name].shape[2], is_fixed=True)]
    for layer in graph.layers:
        rule, channels = layer.channel_rule(*graph.ends(layer)), graph.tensors[layer.output].shape[2]
        if rule is ChannelRule.JOINED:
            parts[layer.output] = [part for name in layer.inputs for part in parts[name]]
            continue
        parts[layer.output] = [Part(channels)]
        if rule is ChannelRule.TIED:
            # What is concatenated stays so after such layers.
            parts[layer.output] = [Part(part.size) for part in parts[layer.input]]
            parts.tie(*layer.inputs, layer.output)
        elif rule is ChannelRule.FIXED:
            for name in (*layer.inputs, layer.output):
                parts.fix(name)
    for name, tensor in graph.tensors.items():
        if name in parts and (name in graph.outputs or tensor.bits != CODE_BITS):
            parts.fix(name)
    return parts


def reordered(graph: Graph, parts: Parts) -> Graph:
    """The graph with all channels in the orders of their parts."""
    tensors = {
        name: _reordered_tensor(tensor, parts.order(name)) if name in parts else tensor
        for name, tensor in graph.tensors.items()
    }
    layers = [layer.reordered(parts.order(layer.output), parts.order(layer.input)) for layer in graph.layers]
    return dataclasses.replace(graph, tensors=tensors, layers=layers)


def _reordered_tensor(tensor: Tensor, order: Order) -> Tensor:
    if not (order != np.arange(len(order))).any():
        return tensor
    return dataclasses.replace(tensor, order=tuple(np.asarray(tensor.order or range(len(order)))[order].tolist()))
