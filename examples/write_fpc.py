"""Write an ONNX file with a fast pointwise convolution, without Lutterfly: how any trainer can export one.

    pip install onnx onnxruntime && python examples/write_fpc.py fpc.onnx

The file has a float input and a float output of 24 and 40 channels, and runs in any ONNX Runtime. Its one layer is a
model-local function whose body, in standard operators, is what ``docs/fpc.md`` describes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS, OUTPUTS, STAGES = 24, 40, 6
WIDTH = 1 << STAGES
OPSET = 17
DOMAIN, NAME = "lutterfly", "FastPointwiseConv"


def constant(name: str, value: object, dtype: type = np.float32) -> onnx.NodeProto:
    """A constant of the body."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype), name))


def stage(number: int, values: str, own: np.ndarray | None, cross: np.ndarray | None) -> list[onnx.NodeProto]:
    """The nodes of a stage, bottom-up: values are paired with those 1, 2, 4 ... away.

    Weights float32[64, 1, 1] are whole numbers from -128 to 127, in units of 1/64; None are all one, and take no room.
    """
    order = np.arange(WIDTH) ^ (1 << number)
    unit = 64
    return [
        constant(f"order{number}", order, np.int64),
        constant(f"own{number}", unit if own is None else own),
        constant(f"cross{number}", unit if cross is None else cross),
        constant(f"unit{number}", 1 / unit),
        constant(f"least{number}", -(2**15)),
        constant(f"greatest{number}", 2**15 - 1),
        helper.make_node("Gather", [values, f"order{number}"], [f"others{number}"], axis=1),
        helper.make_node("Mul", [values, f"own{number}"], [f"straight{number}"]),
        helper.make_node("Mul", [f"others{number}", f"cross{number}"], [f"crossing{number}"]),
        helper.make_node("Add", [f"straight{number}", f"crossing{number}"], [f"sum{number}"]),
        helper.make_node("Mul", [f"sum{number}", f"unit{number}"], [f"scaled{number}"]),
        helper.make_node("Round", [f"scaled{number}"], [f"rounded{number}"]),
        helper.make_node("Clip", [f"rounded{number}", f"least{number}", f"greatest{number}"], [f"values{number + 1}"]),
    ]


def body(rng: np.random.Generator) -> list[onnx.NodeProto]:
    """Codes int8[batch, 24, height, width] to codes int8[batch, 40, height, width], with random weights."""

    def weights() -> np.ndarray:
        return rng.integers(-80, 81, (WIDTH, 1, 1))

    nodes = [
        constant("zero_point", -7),
        constant("shift", 2**4),
        constant("null", [0, 0, 0, 0, 0, WIDTH - INPUTS, 0, 0], np.int64),
        helper.make_node("Cast", ["codes"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["numbers", "zero_point"], ["centred"]),
        helper.make_node("Mul", ["centred", "shift"], ["shifted"]),
        helper.make_node("Pad", ["shifted", "null"], ["values0"]),
    ]
    for number in range(STAGES):
        # The first stage has all weights, the others have those that cross.
        nodes += stage(number, f"values{number}", weights() if number == 0 else None, weights())
    return [
        *nodes,
        *(constant(name, [at], np.int64) for name, at in (("start", 0), ("end", OUTPUTS), ("axis", 1))),
        constant("bias", rng.integers(-200, 200, (OUTPUTS, 1, 1))),
        constant("scale", rng.uniform(0.01, 0.03, (OUTPUTS, 1, 1))),
        constant("result_zero_point", 3),
        constant("low", -128),
        constant("high", 127),
        helper.make_node("Slice", [f"values{STAGES}", "start", "end", "axis"], ["kept"]),
        helper.make_node("Add", ["kept", "bias"], ["biased"]),
        helper.make_node("Mul", ["biased", "scale"], ["requantised"]),
        helper.make_node("Round", ["requantised"], ["rounded"]),
        helper.make_node("Add", ["rounded", "result_zero_point"], ["moved"]),
        helper.make_node("Clip", ["moved", "low", "high"], ["clipped"]),
        helper.make_node("Cast", ["clipped"], ["result"], to=TensorProto.INT8),
    ]


def model(seed: int = 0) -> onnx.ModelProto:
    """A network of one layer between QuantizeLinear and DequantizeLinear."""
    opset = helper.make_opsetid("", OPSET)
    function = helper.make_function(DOMAIN, NAME, ["codes"], ["result"], body(np.random.default_rng(seed)), [opset])
    scales = {"input_scale": 0.02, "output_scale": 0.03}
    zeros = {"input_zero": -7, "output_zero": 3}
    nodes = [
        helper.make_node("QuantizeLinear", ["features", "input_scale", "input_zero"], ["codes"], "quantise"),
        helper.make_node(NAME, ["codes"], ["mixed"], "mix", domain=DOMAIN),
        helper.make_node("DequantizeLinear", ["mixed", "output_scale", "output_zero"], ["result"], "dequantise"),
    ]
    graph = helper.make_graph(
        nodes,
        "fast pointwise convolution",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", INPUTS, 8, 8])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", OUTPUTS, 8, 8])],
        [
            *(numpy_helper.from_array(np.float32(value), name) for name, value in scales.items()),
            *(numpy_helper.from_array(np.int8(value), name) for name, value in zeros.items()),
        ],
    )
    return helper.make_model(
        graph, functions=[function], opset_imports=[opset, helper.make_opsetid(DOMAIN, 1)], ir_version=8
    )


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    onnx.save(model(), parser.parse_args().file)


if __name__ == "__main__":
    main()
