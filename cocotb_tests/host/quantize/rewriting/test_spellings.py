"""One operation in several spellings: each becomes what runs, and its float values stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.frontend import ModelError
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.names import Names
from lutterfly.host.quantize.static_quantisation import quantize, relative_errors

ROWS, MAP, VECTOR = "float[n, 7, 6] x", "float[n, 3, 6, 5] x", "float[n, 6] x"
RNG = np.random.default_rng(3)
SINCE = {"Resize": 18, "GroupNormalization": 21, "RMSNormalization": 23, "Attention": 23}


def model(text: str, given: str, **constants: np.ndarray) -> bytes:
    """Between two layers of the accelerator, so that the host runs nothing of it."""
    # Resize has axes since 18, in which ReduceMean has none.
    version = next((since for operator, since in SINCE.items() if operator in text), 17)
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {version}]> g ({given}) => (float y) {{ {text.strip()} }}'
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
    "one": np.array(1.0),
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
    "one divided by the root": normalised(f"{SQUARE} i = Div(one, r) p = Mul(d, i)"),
}
ROOT = "a = MatMul(x, w) s = Pow(a, two) t = ReduceMean<axes = [-1]>(s) u = Add(t, e) r = Sqrt(u)"
ROOTS = {
    "RMSNormalization": "a = MatMul(x, w) z = RMSNormalization<epsilon = 0.001>(a, g) y = MatMul(z, v)",
    "RMS norm of PyTorch": f"{ROOT} i = Reciprocal(r) p = Mul(a, i) z = Mul(p, g) y = MatMul(z, v)",
    "RMS norm as a quotient": f"{ROOT} p = Div(a, r) z = Mul(g, p) y = MatMul(z, v)",
    "RMS norm of products": f"{ROOT.replace('Pow(a, two)', 'Mul(a, a)')} p = Div(a, r) y = MatMul(p, v)",
}
PRODUCTS = {
    "weights at the left": (
        "a = MatMul(w, x) r = Relu(a) y = MatMul(v, r)",
        {"w": RNG.normal(size=(5, 7)), "v": RNG.normal(size=(4, 5))},
    ),
    "Einsum": ('a = Einsum<equation = "bti,io->bto">(x, w) r = Relu(a) y = MatMul(r, v)', NORM),
    # ONNX Runtime makes a Gemm of the second product before there is a first one, and of the first one afterwards.
    "Einsum in front of a product with a bias": (
        'a = Einsum<equation = "bti,io->bto">(x, w) d = Add(a, b) r = Relu(d) c = MatMul(r, v) y = Add(c, s)',
        NORM | {"s": RNG.normal(size=4)},
    ),
    "Einsum, a view, and a bias": (
        'a = Einsum<equation = "bti,io->bto">(x, w) c = Reshape(a, k) d = Add(c, b) r = Relu(d) y = MatMul(r, v)',
        NORM | {"k": np.array([-1, 7, 8])},
    ),
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
GROUPS = {
    "w": RNG.normal(size=(8, 3, 1, 1)),
    "v": RNG.normal(size=(4, 8, 1, 1)),
    "g": RNG.uniform(0.5, 2, 8),
    "b": RNG.normal(size=8),
}
GROUP_NORMS = {
    f"groups: {name}": f"a = Conv(x, w) {middle} y = Conv(m, v)"
    for name, middle in {
        "two": "m = GroupNormalization<num_groups = 2, epsilon = 0.01>(a, g, b)",
        "one, then every channel": (
            "c = GroupNormalization<num_groups = 1>(a, g, b) m = GroupNormalization<num_groups = 8>(c, g, b)"
        ),
    }.items()
}
ATTENDED = {
    "q": RNG.normal(size=(6, 8)) / 2,
    "k": RNG.normal(size=(6, 8)) / 2,
    "few": RNG.normal(size=(6, 4)) / 2,
    "v": RNG.normal(size=(8, 4)),
    "mask": RNG.normal(size=(7, 7)),
    "hidden": np.where(np.tri(7, k=2), RNG.normal(size=(7, 7)), -np.inf),
    "least": np.where(np.tri(7), 0, np.finfo(np.float32).min),
    "seen": np.tri(7, k=1, dtype=bool),
    "apart": np.array([0, 7, 2, 4]),
    "back": np.array([0, 7, 8]),
}
QUERIES = "a = MatMul(x, q) b = MatMul(x, {}) c = MatMul(x, {})"
ATTENTION = {
    "attention": (
        f"{QUERIES.format('k', 'k')} z = Attention<q_num_heads = 2, kv_num_heads = 2>(a, b, c) y = MatMul(z, v)"
    ),
    "attention of grouped queries with a mask": (
        f"{QUERIES.format('few', 'few')} "
        "z = Attention<q_num_heads = 4, kv_num_heads = 2, scale = 0.3>(a, b, c, mask) y = MatMul(z, v)"
    ),
    **{
        f"attention, {name}": (
            f"{QUERIES.format('k', 'k')} "
            f"z = Attention<q_num_heads = 2, kv_num_heads = 2{causal}>(a, b, c{mask}) y = MatMul(z, v)"
        )
        for name, causal, mask in (
            ("causal", ", is_causal = 1", ""),
            ("causal with a bias", ", is_causal = 1", ", mask"),
            ("causal with minus infinity", ", is_causal = 1", ", hidden"),
            ("with minus infinity", "", ", hidden"),
            ("with the least number", "", ", least"),
            ("with a condition", "", ", seen"),
        )
    },
    "attention of heads": (
        "a = MatMul(x, q) b = Reshape(a, apart) c = Transpose<perm = [0, 2, 1, 3]>(b) d = MatMul(x, k) "
        "e = Reshape(d, apart) f = Transpose<perm = [0, 2, 1, 3]>(e) h = Attention(c, f, f) "
        "i = Transpose<perm = [0, 2, 1, 3]>(h) z = Reshape(i, back) y = MatMul(z, v)"
    ),
}
#: ONNX Runtime makes one Gemm of the second product and the sum.
RESIDUAL = "a = MatMul(x, w) r = Relu(a) p = MatMul(r, u) s = Add(p, x) y = MatMul(s, o)"
RESIDUALS = {
    "a residual sum of vectors": (RESIDUAL, NORM | {"u": RNG.normal(size=(8, 6)), "o": RNG.normal(size=(6, 5))})
}
#: As JAX writes it: the mean of squares less the square of the mean, sums times 1 / n, the factor in the reciprocal.
FLAX = """
    t = ReduceSum<keepdims = 0>(a, last) m = Mul(t, share) mm = Mul(m, m)
    s = Mul(a, a) u = ReduceSum<keepdims = 0>(s, last) q = Mul(u, share)
    d = Sub(q, mm) c = Max(none, d) ck = Unsqueeze(c, last) k = Add(ck, e) r = Sqrt(k) i = Reciprocal(r) f = Mul(i, g)
    mk = Unsqueeze(m, last) o = Sub(a, mk) p = Mul(o, f) z = Add(p, b)
"""
WRITTEN = NORM | {
    "share": np.array(1 / 8),
    "last": np.array([2]),
    "none": np.array(0.0),
    "count": np.array(8.0),
    "low": np.array(-np.inf),
}
JAX_SOFTMAX = """
    m = ReduceMax<axes = [2], keepdims = 0>(a) l = Max(low, m) k = Unsqueeze(l, last) d = Sub(a, k)
    r = Exp(d) t = ReduceSum<keepdims = 0>(r, last) tk = Unsqueeze(t, last) s = Div(r, tk)
"""
RATIO = "a = MatMul(x, w) s = Sigmoid(a) m = ReduceMax<axes = [2]>(s)"
TURNED = "k = ReduceMean<axes = [1]>(a) c = Sub(a, k) d = Transpose<perm = [0, 2, 1]>(c)"
#: Scores near each other: none is so low that nothing is left of it.
NEAR = {"w": NORM["w"] / 8}
#: Along another axis than the last one.
ACROSS = WRITTEN | {
    "share": np.array(1 / 7),
    "last": np.array([1]),
    "g": RNG.normal(size=(1, 7, 1)),
    "b": RNG.normal(size=(1, 7, 1)),
}
WRITTEN_OUT = {
    "a normalisation of Flax": (f"a = MatMul(x, w) {FLAX} y = MatMul(z, v)", WRITTEN),
    "a normalisation of Flax along another axis": (f"a = MatMul(x, w) {FLAX} y = MatMul(z, v)", ACROSS),
    "a sum that is divided": ("a = MatMul(x, w) t = ReduceSum(a, last) m = Div(t, count) y = Add(a, m)", WRITTEN),
    "a sum": ("a = MatMul(x, w) s = Sigmoid(a) t = ReduceSum(s, last) y = Add(a, t)", WRITTEN),
    "a softmax of JAX": (f"a = MatMul(x, w) {JAX_SOFTMAX} y = MatMul(s, v)", WRITTEN | NEAR),
    "a softmax of flattened rows": (
        "a = MatMul(x, w) f = Flatten<axis = 2>(a) s = Softmax(f) z = Reshape(s, back) y = MatMul(z, v)",
        NORM | NEAR | {"back": np.array([-1, 7, 8])},
    ),
    "a transposed difference": (
        f"a = MatMul(x, w) {TURNED} {SQUARE} p = Div(d, r) z = Mul(p, g) y = MatMul(z, v)",
        NORM | {"g": RNG.normal(size=7), "v": RNG.normal(size=(7, 4))},
    ),
    "a quotient by a maximum": (f"{RATIO} q = Div(s, m) y = MatMul(q, v)", NORM),
    "a quotient that is 0 where its divisor is": (
        f"{RATIO} c = Equal(m, none) q = Div(s, m) z = Where(c, none, q) y = MatMul(z, v)",
        WRITTEN,
    ),
    "the least of each row": ("a = MatMul(x, w) m = ReduceMin<axes = [2]>(a) y = Sub(a, m)", NORM),
    "the greatest of a sequence": ("a = MatMul(x, w) m = GlobalMaxPool(a) y = Add(a, m)", NORM),
}
CASES = [
    *((text, ROWS, NORM) for text in (NORMS | ROOTS).values()),
    *((text, ROWS, constants) for text, constants in PRODUCTS.values()),
    *((text, MAP, constants) for text, constants in (MAXIMA | RESIZED).values()),
    *((text, MAP, GROUPS) for text in GROUP_NORMS.values()),
    *((text, ROWS, ATTENDED) for text in ATTENTION.values()),
    *((text, VECTOR, constants) for text, constants in RESIDUALS.values()),
    *((text, ROWS, constants) for text, constants in WRITTEN_OUT.values()),
]
NAMES = [*NORMS, *ROOTS, *PRODUCTS, *MAXIMA, *RESIZED, *GROUP_NORMS, *ATTENTION, *RESIDUALS, *WRITTEN_OUT]


@pytest.mark.parametrize(("text", "given", "constants"), CASES, ids=NAMES)
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
    left = {"Attention", "Einsum", "GroupNormalization", "LayerNormalization", "RMSNormalization", "Softmax"}
    left |= {"GlobalMaxPool", "ReduceMin", "ReduceSum"}
    assert not left & {node.op_type for node in onnx.load_from_string(quantised).graph.node}


OTHERS = {
    # Another variance, mean or axis; what is read elsewhere; no square; a factor for each element.
    "another square": (FLAX.replace("mm = Mul(m, m)", "mm = Mul(m, e)"), "by differences"),
    "no difference": (FLAX.replace("d = Sub(q, mm)", "d = Add(q, mm)"), "by differences"),
    "another mean": (FLAX.replace("o = Sub(a, mk)", "o = Add(a, mk)"), "by differences"),
    "another limit": (FLAX.replace("Max(none, d)", "Max(e, d)"), "by differences"),
    "a bare exponential": ("r = Exp(a) t = ReduceSum(r, last) z = Div(t, r)", "as softmax"),
    "an exponential that is read": ("r = Exp(a) t = ReduceSum(r, last) s = Div(r, t) z = Add(s, r)", "as softmax"),
    "a sum of another axis": ("f = Flatten<axis = 1>(a) s = Softmax(f) z = Reshape(s, back)", "of whole tensors"),
    "a quotient at the end": ("s = Sigmoid(a) m = ReduceMax<axes = [2]>(s) z = Div(s, m)", "its reciprocal"),
    "a quotient by the greater": (
        "s = Sigmoid(a) m = ReduceMax<axes = [2]>(s) q = Div(m, s) z = MatMul(q, v)",
        "its reciprocal",
    ),
    "another difference": (
        "k = ReduceMean<axes = [1]>(a) c = Sub(k, a) z = Transpose<perm = [0, 2, 1]>(c)",
        "transposed before it is taken",
    ),
}


@pytest.mark.parametrize(("text", "title"), OTHERS.values(), ids=[*OTHERS])
def test_what_is_written_otherwise_keeps_its_values(text: str, title: str, tmp_path: Path) -> None:
    constants = WRITTEN | {"back": np.array([-1, 7, 8])}
    data = model(f"a = MatMul(x, w) {text} y = Sigmoid(z)", ROWS, **constants)
    given_model = onnx.load_from_string(data)
    names = Names(given_model)
    prepared, found = prepare(given_model, "net", tmp_path)
    names.restore(prepared)
    assert not any(title in one.rewriting.title for one in found)
    errors = relative_errors(Model(data), Model.written(prepared), {"x": values(ROWS)[:1]})
    assert max(errors.values()) < 1e-3


def test_offsets_in_a_row_are_a_vector() -> None:
    text = "a = Gemm(x, w, o) r = Relu(a) y = Gemm(r, v)"
    data = model(text, VECTOR, **NORM, o=RNG.normal(size=(1, 8)))
    samples = {"x": values(VECTOR)}
    quantised = quantize(data, samples)
    (error,) = relative_errors(Model(data), Model(quantised), samples).values()
    assert error < 0.02
    assert len(compile_model(quantised, PRESETS["ecp5-85k"]).layers) == 2


def test_a_sum_of_integers_is_left(tmp_path: Path) -> None:
    text = "s = Shape(x) t = ReduceSum(s, first) c = Cast<to = 1>(t) a = MatMul(x, w) y = Mul(a, c)"
    data = model(text, ROWS, **NORM, first=np.array([0]))
    prepared, _ = prepare(onnx.load_from_string(data), "net", tmp_path)
    errors = relative_errors(Model(data), Model.written(prepared), {"x": values(ROWS)[:1]})
    assert max(errors.values()) < 1e-3


@pytest.mark.parametrize(
    "text",
    [
        # Another axis, another power, epsilon for each element, a deviation without root.
        NORMS["PyTorch"].replace("ReduceMean<axes = [2]>", "ReduceMean<axes = [1]>"),
        NORMS["PyTorch"].replace("Pow(d, two)", "Pow(d, three)"),
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


@pytest.mark.parametrize(
    "text",
    [
        # The mean of another axis, or one that is read twice.
        NORMS["PyTorch"].replace("ReduceMean<axes = [-1]>", "ReduceMean<axes = [1]>"),
        NORMS["PyTorch"].replace("z = Add(q, b)", "k = Add(q, b) z = Add(k, m)"),
    ],
)
def test_another_difference_is_divided_by_its_root(text: str, tmp_path: Path) -> None:
    data = model(text, ROWS, **NORM)
    prepared, found = prepare(onnx.load_from_string(data), "net", tmp_path)
    assert any("written out" in one.rewriting.title for one in found)
    assert any("d" in node.output and node.op_type == "Sub" for node in prepared.graph.node)
    errors = relative_errors(Model(data), Model.written(prepared), {"x": values(ROWS)[:1]})
    assert max(errors.values()) < 1e-3


@pytest.mark.parametrize(
    "text",
    [
        ROOTS["RMS norm of PyTorch"].replace("Mul(a, i)", "Mul(x, i)"),
        ROOTS["RMS norm of PyTorch"].replace("MatMul(z, v)", "MatMul(s, v)"),
        ROOTS["RMS norm as a quotient"].replace("ReduceMean<axes = [-1]>", "ReduceMean<axes = [1]>"),
        ROOTS["RMS norm as a quotient"].replace("Pow(a, two)", "Pow(a, three)"),
    ],
)
def test_another_root_is_left(text: str, tmp_path: Path) -> None:
    constants = NORM | {"w": np.eye(6), "v": RNG.normal(size=(6, 4)), "g": RNG.normal(size=6), "three": np.array(3.0)}
    data = model(text, ROWS, **constants)
    _, found = prepare(onnx.load_from_string(data), "net", tmp_path)
    assert not any("written out" in one.rewriting.title for one in found)


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION["attention"].replace("kv_num_heads = 2", "kv_num_heads = 2, softcap = 2.0"),
        ATTENTION["attention"].replace("z = ", "h = Unsqueeze(x, at) z = ").replace("(a, b, c)", "(a, b, c, h)"),
    ],
    ids=["capped", "a computed mask"],
)
def test_other_attention_is_left(text: str, tmp_path: Path) -> None:
    # A computed mask has as many columns as keys.
    given, width = ("float[n, 7, 7] x", 7) if "Unsqueeze" in text else (ROWS, 6)
    constants = ATTENDED | {name: RNG.normal(size=(width, 8)) for name in "qk"}
    data = model(text, given, **constants, at=np.array([1]))
    _, found = prepare(onnx.load_from_string(data), "net", tmp_path)
    assert not any("attention" in one.rewriting.title for one in found)
    with pytest.raises(ModelError, match=r"no Attention; do without softcap, earlier keys and"):
        compile_model(quantize(data, {"x": values(given)}), PRESETS["ecp5-85k"])


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
