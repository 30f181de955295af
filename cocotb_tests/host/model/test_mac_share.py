"""The share of the multiply-accumulates: counts against ONNX Runtime, which sums ones, and what commands say of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command.main import main
from lutterfly.host.compiler import compile_model
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.mac_share import MacShare, count, mac_share
from lutterfly.host.model.model import Model

Shape = tuple[int, ...]


def model(
    nodes: list[onnx.NodeProto],
    shape: Shape,
    constants: dict[str, np.ndarray],
    opset: int = 17,
    functions: list[onnx.FunctionProto] | None = None,
    rank: int | None = None,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "part",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, rank and [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in (("", opset), ("own", 1), ("com.microsoft", 1))
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions or []).SerializeToString()


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("operator", "shape", "others", "attributes"),
    [
        ("Conv", (2, 6, 9, 8), [(10, 6, 3, 2)], {}),
        ("Conv", (1, 6, 9, 8), [(9, 2, 3, 3)], {"group": 3, "strides": [2, 1], "dilations": [1, 2]}),
        ("Conv", (1, 4, 20), [(4, 1, 5)], {"group": 4}),
        ("ConvTranspose", (1, 6, 5, 4), [(6, 3, 3, 2)], {"strides": [2, 3]}),
        ("ConvTranspose", (1, 6, 5, 4), [(6, 3, 3, 2)], {"group": 2}),
        ("Gemm", (3, 7), [(7, 5)], {}),
        ("Gemm", (7, 3), [(5, 7)], {"transA": 1, "transB": 1}),
        ("MatMul", (2, 3, 4, 7), [(7, 5)], {}),
        ("MatMul", (2, 3, 4, 7), [(2, 1, 7, 5)], {}),
        ("MatMul", (7,), [(7, 5)], {}),
        ("MatMul", (7,), [(7,)], {}),
        ("Einsum", (2, 3, 7), [(2, 7, 5)], {"equation": "bik, bkj -> bij"}),
        ("Einsum", (4, 7), [(7, 4)], {"equation": "ij,ji->"}),
        (
            "RNN",
            (1, 3, 6),
            [(2, 5, 6), (2, 5, 5), (2, 10), (), (2, 3, 5)],
            {
                "hidden_size": 5,
                "direction": "bidirectional",
                "activations": ["Affine"] * 2,
                "activation_alpha": [1.0, 1.0],
            },
        ),
    ],
)
def test_a_count_is_the_sum_of_ones(operator: str, shape: Shape, others: list[Shape], attributes: dict) -> None:
    """All operands are one: the sum of the result is the number of products in it."""
    constants = {f"c{index}": ones(*other) for index, other in enumerate(others) if other}
    if operator == "RNN":
        constants["c2"] *= 0
    names = [f"c{index}" if other else "" for index, other in enumerate(others)]
    node = helper.make_node(operator, ["x", *names], ["y"], "only", **attributes)
    data = model([node], shape, constants)
    (result,) = open_session(Model(data)).run(None, {"x": ones(*shape)})
    assert count(Model(data)) == {f"{operator} 'only'": int(result.sum())}


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("layout", [0, 1])
def test_each_gate_of_each_step_meets_input_and_state(operator: str, gates: int, layout: int) -> None:
    steps, samples, inputs, hidden = 10, 2, 6, 5
    shape = (samples, steps, inputs) if layout else (steps, samples, inputs)
    data = model(
        [helper.make_node(operator, ["x", "w", "r"], ["y"], "only", hidden_size=hidden)],
        shape,
        {"w": ones(1, gates * hidden, inputs), "r": ones(1, gates * hidden, hidden)},
    )
    assert count(Model(data)) == {f"{operator} 'only'": gates * steps * samples * hidden * (inputs + hidden)}


def test_what_is_inside_and_what_is_not_known() -> None:
    product = helper.make_node("MatMul", ["a", "b"], ["c"], "inner")
    function = helper.make_function("own", "Product", ["a", "b"], ["c"], [product], [helper.make_opsetid("", 17)])
    data = model(
        [helper.make_node("Product", ["x", "w"], ["y"], "called", domain="own")],
        (3, 4),
        {"w": ones(4, 5)},
        functions=[function],
    )
    assert list(count(Model(data)).values()) == [60]

    def branches(operator: str) -> bytes:
        graphs = [
            helper.make_graph(
                [helper.make_node(operator, ["x", "w"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
            )
            for name in ("yes", "no")
        ]
        node = helper.make_node("If", ["c"], ["y"], "either", then_branch=graphs[0], else_branch=graphs[1])
        return model([node], (4, 4), {"w": ones(4, 4), "c": np.array(True)})

    assert count(Model(branches("Add"))) == {"If 'either'": 0}
    assert count(Model(branches("MatMul"))) == {"If 'either'": None}
    gelu = model([helper.make_node("Gelu", ["x"], ["y"], "gelu", domain="com.microsoft")], (3, 4), {})
    assert count(Model(gelu)) == {"Gelu 'gelu'": 0}
    norm = model([helper.make_node("Inverse", ["x"], ["y"], "inverse", domain="com.microsoft")], (4, 4), {})
    assert count(Model(norm)) == {"Inverse 'inverse'": None}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", digits.FORMS)
def test_the_compiler_counts_alike(form: str) -> None:
    data = digits.model_path(form).read_bytes()
    share = mac_share(compile_model(data, PRESETS["tiny"]), ())
    fixed = onnx.load_from_string(data)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert sum(count(Model.written(fixed)).values()) == share.accelerator == share.total
    assert share.share == 1
    assert share.warnings == []


@pytest.mark.parametrize(
    ("accelerator", "host", "unknown", "share", "lines"),
    [
        (100, {}, (), 1.0, ["accelerator: 100 of the network's 100 multiply-accumulates (100.0%)"]),
        (50, {"LSTM 'a'": 50}, (), 0.5, ["accelerator: 50 of the network's 100 multiply-accumulates (50.0%)"]),
        (
            49,
            {"LSTM 'a'": 40, "Conv 'b'": 11},
            (),
            0.49,
            [
                "accelerator: 49 of the network's 100 multiply-accumulates (49.0%)",
                "warning: most of the network runs on the host: LSTM 'a' (40), Conv 'b' (11)",
            ],
        ),
        (
            0,
            {f"Conv '{index}'": 5 - index for index in range(5)},
            (),
            0,
            [
                "accelerator: 0 of the network's 15 multiply-accumulates (0.0%)",
                "warning: most of the network runs on the host: Conv '0' (5), Conv '1' (4), Conv '2' (3) and 2 others",
            ],
        ),
        (
            9,
            {},
            ("DFT 'd'",),
            None,
            [
                "accelerator: 9 of the network's 9 multiply-accumulates (at most 100.0%)",
                "warning: how much work these are on the host is not known: DFT 'd'",
            ],
        ),
        (0, {}, (), None, ["accelerator: 0 of the network's 0 multiply-accumulates (none)"]),
    ],
)
def test_lines(
    accelerator: int, host: dict[str, int], unknown: tuple[str, ...], share: float | None, lines: list[str]
) -> None:
    found = MacShare(accelerator, host, unknown)
    assert found.lines() == lines
    assert found.share == share
    assert found.values() == {
        "host_macs": None if unknown else sum(host.values()),
        "mac_share": share,
        "warnings": [line.removeprefix("warning: ") for line in lines[1:]],
    }


@pytest.mark.regress
def test_every_command_warns_of_a_network_that_the_host_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recurrent network that `quantize` leaves: what the accelerator has is the layer after it."""
    monkeypatch.chdir(tmp_path)
    rng, hidden, inputs, steps = np.random.default_rng(0), 16, 8, 5
    weights = {"w": (1, hidden, inputs), "r": (1, hidden, hidden), "f": (10, hidden)}
    constants = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in weights.items()}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "swap", perm=[1, 0, 2]),
        helper.make_node("RNN", ["t", "w", "r"], ["", "h"], "rnn", hidden_size=hidden, activations=["Relu"]),
        helper.make_node("Squeeze", ["h", "axis"], ["s"], "last"),
        helper.make_node("Gemm", ["s", "f"], ["y"], "fc", transB=1),
    ]
    Path("net.onnx").write_bytes(model(nodes, ("batch", steps, inputs), constants | {"axis": np.array([0])}, rank=2))
    # Enough to hold some out, so that quantize has no other warning.
    x = rng.normal(size=(10, steps, inputs)).astype(np.float32)
    np.savez("x.npz", x=x)
    np.save("x.npy", x)
    macs = steps * hidden * (inputs + hidden)
    line = f"accelerator: 160 of the network's {macs + 160:,} multiply-accumulates ({160 / (macs + 160):.1%})"
    warning = f"most of the network runs on the host: RNN 'rnn' ({macs:,})"
    for words in (
        ["quantize", "net.onnx", "--calibrate", "x.npz"],
        ["check", "net_int8.onnx"],
        ["compile", "net_int8.onnx", "-o", "net.program"],
        ["run", "net.program", "--input", "x.npy"],
        ["verify", "net.program", "--samples", "1"],
    ):
        assert main([*words, "--config", "tiny", "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        assert (values["macs"], values["host_macs"], values["warnings"]) == (160, macs, [warning])
        assert values["mac_share"] == pytest.approx(160 / (macs + 160), abs=1e-6)
        if words[0] in ("run", "verify"):
            continue
        assert main([*words, "--config", "tiny"]) == 0
        assert f"{line}\nwarning: {warning}\n" in capsys.readouterr().out
