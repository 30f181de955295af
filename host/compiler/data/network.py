"""Network: what is compiled, for which accelerator, and which tensors lie in others."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....golden.config import Config
from ...graph import Graph, Layer
from .errors import CompileError


@dataclass
class Network:
    """What is compiled, and for which accelerator.

    Attributes
    ----------
    graph : Graph
    config : Config
    views : dict of str to tuple of (str, int)
        Tensors that are some channels of another one: which one's, and the first of them.
    """

    graph: Graph
    config: Config
    views: dict[str, tuple[str, int]] = field(default_factory=dict)

    def consumers(self, tensor: str) -> list[tuple[int, Layer]]:
        """The layers that read ``tensor``, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if tensor in layer.inputs]

    def place_of(self, name: str) -> tuple[str, int]:
        """The tensor that is no view in which a tensor lies, and its first channel there."""
        channel = 0
        while name in self.views:
            name, first = self.views[name]
            channel += first
        return name, channel

    def root(self, name: str) -> str:
        """The tensor that is no view in which a tensor lies: itself, if it is none."""
        return self.place_of(name)[0]

    @property
    def roots(self) -> list[str]:
        """Every tensor that lies in the feature memory and is no view: inputs first, then in the order of writing."""
        names = [*self.graph.inputs, *(layer.output for layer in self.graph.layers)]
        return list(dict.fromkeys(map(self.root, names)))

    def readers(self, root: str) -> list[tuple[int, Layer]]:
        """The layers that read a tensor or a view of it, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if root in map(self.root, layer.inputs)]


def check_begins_at_byte(network: Network, layer: Layer, name: str, channel: int) -> None:
    """Refuse to read or write channels of a tensor apart from those before them, where they share a byte.

    Raises
    ------
    CompileError
        If the channel begins within a byte.
    """
    bits = network.graph.tensors[name].bits
    if channel * bits % 8:
        raise CompileError(
            f"{layer.name}: channel {channel} of {name} must begin at a byte, not within one, with {bits} bits an "
            "element; let a multiple of 8 channels lie before it"
        )
