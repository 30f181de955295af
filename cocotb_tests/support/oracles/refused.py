"""Networks that the frontend refuses, and what it says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import TINY, Maker
from lutterfly.host.frontend import ModelError, import_model


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(data, "net.onnx")
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


#: The remedy of codes of two types.
ONE_TYPE = "quantise all activations to one type, as `lutterfly quantize` does with the float model"
#: What the message of a product in float ends with where float32 may decide on a code.
POWERS = ", or use scales that are powers of two (Brevitas: FixedPoint quantisers, or export_qonnx)"


def without_numbers(message: str) -> str:
    """A message without the sum, the channel and the codes between which float32 may decide."""
    return re.sub(
        r"round the sum -?\d+ of channel \d+ to the code -?\d+ or to -?\d+", "round the sum to either code", message
    )


def maker(shape: tuple[int, ...], form: str = "qdq", *, unsigned: bool = False) -> Maker:
    made = Maker(np.random.default_rng(0), form, unsigned, TINY)
    made.start(shape)
    return made


def convolved(form: str = "qdq") -> Maker:
    made = maker((1, 3, 6, 6), form)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    return made


def main_name(made: Maker, index: int = 0) -> str:
    """Name of the index-th convolution or matrix product."""
    operators = ("Conv", "Gemm", "MatMul", "QLinearConv", "QGemm", "QLinearMatMul")
    return [f"{node.op_type} '{node.name}'" for node in made.nodes if node.op_type in operators][index]


def between(made: Maker, operator: str) -> str:
    """Add a convolution, and say where the last operator of a kind stands."""
    name = next(node.name for node in reversed(made.nodes) if node.op_type == operator)
    made.product("Conv", (2, made.shape[1], 1, 1), 0, (1, 2, *made.shape[2:]))
    return f"net.onnx: {operator} '{name}' between {main_name(made)} and {main_name(made, 1)} is not supported: "


def refusal_in_the_middle(made: Maker, operator: str) -> str:
    """Why the last operator of a kind is refused between two convolutions."""
    begin = between(made, operator)
    text = refusal(made.serialise())
    assert text.startswith(begin)
    return text.removeprefix(begin)
