"""Replacement of a float model's names while it is quantised, and the user's names afterwards.

Quantisation derives names from names: ``x`` gets a scale ``x_scale``. A file may have that name already, and nodes may
have none. So every tensor and node has a number for a name in between, from which no other name can be derived.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from onnx import ModelProto

from ..model.model_graph import free_name, rename_tensors, tensor_names

_OWN = re.compile(r"%(\d+)%")
_FUSED = ("gemm_input_shape", "gemm_output_shape")
_Value = TypeVar("_Value")


class Names:
    """The names of a model, which are replaced by numbers.

    Parameters
    ----------
    model : ModelProto
        The model, whose tensors and nodes are renamed.
    """

    def __init__(self, model: ModelProto):
        self._given: list[str] = []
        self._tensors: dict[str, str] = {}
        self._nodes: set[str] = set()
        graph = model.graph
        for name in tensor_names(graph):
            self._tensors.setdefault(name, self._own(name))
        rename_tensors(graph, self._tensors)
        taken: set[str] = {node.name for node in graph.node}
        seen: set[str] = set()
        for place, node in enumerate(graph.node):
            name = node.name
            if not name or name in seen:
                name = free_name(f"{node.name or node.op_type}_{place}", taken)
            seen.add(name)
            node.name = self._own(name)
            self._nodes.add(node.name)

    def _own(self, name: str) -> str:
        self._given.append(name)
        return f"%{len(self._given) - 1}%"

    def of_tensors(self, values: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return values by the new names of tensors, as far as the model has these."""
        return {self._tensors[name]: value for name, value in values.items() if name in self._tensors}

    def told(self, text: str) -> str:
        """Return a text with the user's names in place of the numbers."""
        return _OWN.sub(lambda own: self._given[int(own[1])], text)

    def restore(self, *models: ModelProto) -> None:
        """Give models that were derived from it the user's names; new tensors and nodes get unique names."""
        found: dict[str, str] = {}
        taken = set(self._tensors)
        # ONNX Runtime names a tensor that it adds after the node that computes it.
        tensors = set(self._tensors.values())
        for model in models:
            for name in tensor_names(model.graph):
                if name not in found:
                    told = self.told(name)
                    found[name] = told if name in tensors else free_name(told, taken)
            rename_tensors(model.graph, found)
            nodes: set[str] = {self.told(node.name) for node in model.graph.node if node.name in self._nodes}
            for node in model.graph.node:
                told = self.told(node.name)
                node.name = told if node.name in self._nodes else free_name(told or node.op_type, nodes)


def rename_shapes(model: ModelProto) -> None:
    """Rename the constants that ONNX Runtime adds when it fuses MatMul and Add, which fails where their names exist.

    The model that it has written is opened again, and then it may fuse further nodes.
    """
    added = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith(_FUSED)]
    rename_tensors(model.graph, {name: f"rows_{name}" for name in added})
