"""One operation in several spellings: each becomes what runs, and its float values stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.names import Names
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

ROWS, MAP = "float[n, 7, 6] x", "float[n, 3, 6, 5] x"
RNG = np.random.default_rng(3)


def model(text: str, given: str, **constants: np.ndarray) -> bytes:
    """Between two layers of the accelerator, so that the host runs nothing of it."""
    # Resize has axes since 18, in which ReduceMean has none.
    version, inside = 18 if "Resize" in text else 17, text.strip()
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {version}]> g ({given}) => (float y) {{ {inside} }}'
    )
    for name, array in constants.items():
        stored = array.astype(np.float32) if array.dtype.kind == "f" else array
        proto.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(proto).SerializeToString()


def values(given: str) -> np.ndarray:
    sizes = [int(size) for size in given[given.index("n") + 2 : given.index("]")].split(",")]
    # Of its own: which tests ran before must not matter.
    return np.random.default_rng(7).normal(size=(12, *sizes)).astype(np.float32)


def normalised(middle: str, end: str = "q = Mul(p, g) z = Add(q, b)") -> str:
    return f"a = MatMul(x, w) m = ReduceMean<axes = [-1]>(a) d = Sub(a, m) {middle} {end} y = MatMul(z, v)"


SQUARE = "s = Pow(d, two) t = ReduceMean<axes = [2]>(s) u = Add(t, e) r = Sqrt(u)"
NORM = {
    "w": RNG.normal(size=(6, 8)),
    "v": RNG.normal(size=(8, 4)),
    "g": RNG.normal(size=8),
    "b": RNG.normal(size=8),
    "two": np.array(2.0),
    "e": np.array(1e-5),
}
NORMS = {
    "PyTorch": normalised(f"{SQUARE} p = Div(d, r)"),
    "a product as square": normalised(f"{SQUARE.replace('Pow(d, two)', 'Mul(d, d)')} p = Div(d, r)"),
    "a reciprocal": normalised(f"{SQUARE} i = Reciprocal(r) p = Mul(d, i)"),
    "a reciprocal in front": normalised(f"{SQUARE} i = Reciprocal(r) p = Mul(i, d)"),
    "epsilon in front": normalised(f"{SQUARE.replace('Add(t, e)', 'Add(e, t)')} p = Div(d, r)"),
    "without factors": normalised(f"{SQUARE} p = Div(d, r)", "z = Add(p, b)"),
    "without offsets": normalised(f"{SQUARE} p = Div(d, r)", "z = Mul(g, p)"),
    "without both": normalised(f"{SQUARE} z = Div(d, r)", ""),
}
PRODUCTS = {
    "weights at the left": (
        "a = MatMul(w, x) r = Relu(a) y = MatMul(v, r)",
        {"w": RNG.normal(size=(5, 7)), "v": RNG.normal(size=(4, 5))},
    ),
    "Einsum": ('a = Einsum<equation = "bti,io->bto">(x, w) r = Relu(a) y = MatMul(r, v)', NORM),
    "Einsum with weights turned": (
        'a = Einsum<equation = "b t i, o i -> b t o">(x, w) r = Relu(a) y = MatMul(r, v)',
        NORM | {"w": RNG.normal(size=(8, 6))},
    ),
}
SOFTMAX = {"w": RNG.normal(size=(4, 3, 1, 1)), "v": RNG.normal(size=(4, 4, 1, 1))}
MAXIMA = {
    f"softmax over axis {axis}": (f"a = Conv(x, w) s = Softmax<axis = {axis}>(a) y = Conv(s, v)", SOFTMAX)
    for axis in (1, 2, 3, -1, -3)
}
RESIZED = {
    f"resize by {name} of named axes": (
        f'a = Conv(x, w) s = Resize<mode = "linear", axes = [{axes}]>(a, , {operand}) y = Conv(s, v)',
        SOFTMAX | {"sizes": np.array([9, 7]), "scales": np.array([2.0, 1.0]), "only": np.array([2.0])},
    )
    for name, axes, operand in (("sizes", "2, 3", ", sizes"), ("scales", "-2, -1", "scales"), ("a scale", "3", "only"))
}
CASES = [
    *((text, ROWS, NORM) for text in NORMS.values()),
    *((text, ROWS, constants) for text, constants in PRODUCTS.values()),
    *((text, MAP, constants) for text, constants in (MAXIMA | RESIZED).values()),
]


@pytest.mark.parametrize(("text", "given", "constants"), CASES, ids=[*NORMS, *PRODUCTS, *MAXIMA, *RESIZED])
def test_it_runs_and_is_near(text: str, given: str, constants: dict[str, np.ndarray], tmp_path: Path) -> None:
    data, samples = model(text, given, **constants), {"x": values(given)}
    given_model = onnx.load_from_string(data)
    names = Names(given_model)
    prepared, found = prepare(given_model, "net", tmp_path)
    names.restore(prepared)
    assert found
    errors = relative_errors(Model(data), Model.written(prepared), {"x": samples["x"][:1]})
    assert max(errors.values()) < 1e-3
    quantised = quantize(data, samples)
    (error,) = relative_errors(Model(data), Model(quantised), samples).values()
    assert error < 0.1
    program = compile_model(quantised, PRESETS["ecp5-85k"])
    assert sum(layer.macs for layer in program.layers) > 0
    assert not {"Einsum", "Softmax", "LayerNormalization"} & {
        node.op_type for node in onnx.load_from_string(quantised).graph.node
    }


@pytest.mark.parametrize(
    "text",
    [
        # Another axis, another power, a mean that is read twice, epsilon for each element, a deviation without root.
        NORMS["PyTorch"].replace("ReduceMean<axes = [-1]>", "ReduceMean<axes = [1]>"),
        NORMS["PyTorch"].replace("ReduceMean<axes = [2]>", "ReduceMean<axes = [1]>"),
        NORMS["PyTorch"].replace("Pow(d, two)", "Pow(d, three)"),
        NORMS["PyTorch"].replace("z = Add(q, b)", "k = Add(q, b) z = Add(k, m)"),
        NORMS["PyTorch"].replace("Add(t, e)", "Add(t, b)"),
        NORMS["PyTorch"].replace("Sqrt(u)", "Exp(u)"),
        NORMS["PyTorch"].replace("Div(d, r)", "Div(r, d)"),
        NORMS["PyTorch"].replace("Sub(a, m)", "Sub(m, a)"),
    ],
)
def test_what_is_another_thing_is_left(text: str, tmp_path: Path) -> None:
    data = model(text, ROWS, **NORM, three=np.array(3.0))
    _, found = prepare(onnx.load_from_string(data), "net", tmp_path)
    assert not any("written out" in one.rewriting.title for one in found)


def test_a_difference_that_is_an_output_stays_one(tmp_path: Path) -> None:
    given_model = onnx.load_from_string(model(NORMS["PyTorch"], ROWS, **NORM))
    given_model.graph.output.append(onnx.helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, ["n", 7, 8]))
    prepared, _ = prepare(given_model, "net", tmp_path)
    assert any("d" in node.output for node in prepared.graph.node)


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ('y = Einsum<equation = "bti,io->tbo">(x, w)', NORM),
        ('y = Einsum<equation = "bti,to->bio">(x, w)', NORM | {"w": RNG.normal(size=(7, 6))}),
        ('y = Einsum<equation = "bti,bti->bt">(x, x)', {}),
        ("t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(x, t)", {}),
    ],
)
def test_other_products_are_left(text: str, constants: dict[str, np.ndarray], tmp_path: Path) -> None:
    data = model(text, ROWS, **{name: array for name, array in constants.items() if name in text})
    _, found = prepare(onnx.load_from_string(data), "net", tmp_path)
    assert not any(one.rewriting.title.startswith(("Einsum", "a product with weights")) for one in found)
