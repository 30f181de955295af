"""Names that users' tensors and nodes have: none, twice the same, digits, other scripts, and what quantising makes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy], object]

#: What exporters, people and quantising call tensors.
_ODD = (
    *("x", "x_scale", "x_zero_point", "x_quantized", "x_QuantizeLinear_Output", "x_DequantizeLinear_Output"),
    *("y_QuantizeLinear_Input", "w_scale", "w_zero_point", "w_quantized", "x_mean", "x_normalised_square"),
    *("0", "1", "00", "12", "-1", "%0%", "%1%", "%2%_scale", "x[0:7, 0:16]", "a b", "a;a", "a/b.c:0", "{0}"),
    *("größe", "层", "ñ\u0303", "onnx::Conv_1", "model_1/a/b;model_1/a/b", "_quantized", "_scale", "_zero_point"),
)
NODE_NAMES = ("own", "none", "outputs", "own", "none", "outputs", "own", "none", "outputs", "all the same")


class Naming:
    """Draws names for one network; no two tensors have the same, as ONNX demands."""

    def __init__(self, draw: Draw):
        self._nodes = draw(st.sampled_from(NODE_NAMES))
        is_odd = draw(st.booleans())
        self._odd = list(draw(st.permutations(_ODD))) if is_odd else []
        self._count = 0
        self.text = f"nodes: {self._nodes}; tensors: {'odd' if is_odd else 'plain'}"

    def tensor(self) -> str:
        """A name that no other tensor has."""
        self._count += 1
        return self._odd.pop() if self._odd else f"t{self._count}"

    def node(self, operator: str, output: str) -> str:
        """A node's name; ONNX Runtime refuses two of one name."""
        return {
            "own": f"{operator}_{self._count}",
            "none": "",
            "outputs": output,
            "all the same": "node",
        }[self._nodes]
