"""Networks with tensors of 16-bit codes between 8-bit ones."""

from __future__ import annotations

import numpy as np

from cocotb_tests.support.networks.generated import TINY, Maker

WIDE = (np.int16, np.uint16)


def convolved(unsigned: bool = False) -> Maker:
    """A 3x3 convolution from 3x6x6 to 4x4x4."""
    made = Maker(np.random.default_rng(3), "qdq", unsigned, TINY)
    made.start((1, 3, 6, 6))
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    return made


def widened(
    made: Maker, tensor: str, dtype: type = np.int16, scale: float = 0.0001, zero: int = 0, *, domain: str = ""
) -> str:
    """A float tensor, quantised to 16 bits and dequantised; codes of uint16 are ``zero`` and 32768 for 0."""
    zero += 1 << 15 if dtype is np.uint16 else 0
    ends = [made.constant("scale", np.float32(scale)), made.constant("zero", dtype(zero))]
    codes = made.node("QuantizeLinear", [tensor, *ends], domain=domain)
    return made.node("DequantizeLinear", [codes, *ends], domain=domain)


def main_name(made: Maker, operator: str, at: int = -1) -> str:
    """The name of a node, counted among those of its operator."""
    return [node.name for node in made.nodes if node.op_type == operator][at]


def repeated(count: int) -> Maker:
    """The same activation, computed in 16 bits, after each of several convolutions to one scale and zero point."""
    made = Maker(np.random.default_rng(3), "qdq", False, TINY)
    made.start((1, 4, 4, 4))
    for _ in range(count):
        made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
        made.constants[made.scale], made.constants[made.zero] = np.float32(0.05), np.int8(3)
        tensor = made.node("Tanh", [widened(made, made.dequantised())])
        made.quantise(widened(made, tensor, np.uint16, 0.00003), *made.quantisation(0.01, 0), made.shape)
    return made
