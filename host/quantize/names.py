"""Names of our own while a float model is quantised, and the user's back afterwards.

Quantising makes names of names: ``x`` gets a scale ``x_scale``. A file may have that name already, and nodes may have
none. So every tensor and node is called by a number in between, from which no other name can be made.
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
    """The names of a model, in whose place are numbers from here on.

    Parameters
    ----------
    model : ModelProto
        Its tensors and nodes are renamed.
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
        """Values by our names of tensors, of those that the model has."""
        return {self._tensors[name]: value for name, value in values.items() if name in self._tensors}

    def told(self, text: str) -> str:
        """A text in which the user's names stand."""
        return _OWN.sub(lambda own: self._given[int(own[1])], text)

    def restore(self, *models: ModelProto) -> None:
        """Give models that were made of it the user's names; what was made on the way gets names that nobody has."""
        found: dict[str, str] = {}
        taken = set(self._tensors)
        # ONNX Runtime calls a tensor that it adds by the name of the node that gives it.
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
    """Rename the constants that ONNX Runtime adds when it fuses MatMul and Add: it fails where their names are taken.

    What it has written is opened again, and then it may fuse others.
    """
    added = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith(_FUSED)]
    rename_tensors(model.graph, {name: f"rows_{name}" for name in added})
