"""`lutterfly check`: where each layer runs, how it is bound, and what memory it needs, as text and for scripts."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from cocotb_tests.support.networks.mixed import FIRST_ARRANGED
from cocotb_tests.support.networks.mixed import network as mixed_network
from cocotb_tests.support.networks.small_models import repeated
from cocotb_tests.support.oracles.reported import NETWORKS, model, report_of
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.outline import Outline, Tried
from lutterfly.host.command.main import main
from lutterfly.host.command.models import tried_lines, tried_values
from lutterfly.host.compiler import compile_model
from lutterfly.host.files.terminal import tables_text

PAGE = Path(__file__).parents[3] / "docs" / "compiler.md"


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def path(network: str, tmp_path: Path) -> Path:
    (tmp_path / "net.onnx").write_bytes(model(network))
    return tmp_path / "net.onnx"


def values_of(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["check", str(path), "--config", "tiny", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rows_of(path: Path, capsys: pytest.CaptureFixture[str], config: str = "tiny") -> tuple[list[str], list[str]]:
    """The lines of the table, and those after it."""
    assert main(["check", str(path), "--config", config]) == 0
    table, _, rest = capsys.readouterr().out.partition("\n\n")
    return table.splitlines(), rest.splitlines()


@pytest.mark.regress
def test_values_are_the_programs(network: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, facts = report_of(network)
    values = values_of(path, capsys)
    layers = [layer for layer in values["layers"] if layer["fold"] is not None]
    for layer, fact in zip(layers, facts.layers, strict=True):
        planned = fact.planned
        assert (layer["name"], layer["operation"]) == (planned.name, planned.operation)
        assert layer["predicted_cycles"] == planned.cycles
        for name in ("fold", "bound", "macs", "array_cycles", "bus_cycles"):
            assert layer[name] == getattr(planned, name)
        for name in ("weight_bytes", "streamed_weight_bytes", "feature_bytes", "loaded_bytes", "stored_bytes"):
            assert layer[name] == getattr(planned, name)
        assert (layer["in_parts"], layer["spilled"]) == (list(planned.in_parts), list(planned.spilled))
    others = [layer for layer in values["layers"] if layer["fold"] is None]
    assert [layer["operation"] for layer in others if layer["where"] == "accelerator"] == (
        ["concatenation"] if network == "joined" else []
    )
    assert all({layer["bound"], layer["weight_bytes"], layer["predicted_cycles"]} == {None} for layer in others)
    assert sum(layer["predicted_cycles"] for layer in layers) <= values["predicted_cycles"]
    for use in facts.constants:
        memory = values["memories"][use.name]
        assert memory["bytes"] == use.capacity
        staying = {name: size for name, size in use.parts.items() if name != "loaded in every inference"}
        assert memory["used_bytes"] == sum(staying.values())
    feature = values["memories"]["feature memory"]
    assert feature["used_bytes"] == max(layer["feature_bytes"] for layer in layers) <= feature["bytes"]


@pytest.mark.sampled(2)
def test_the_table_says_what_stays_and_what_does_not(
    network: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (head, *lines), rest = rows_of(path, capsys)
    assert head.split() == [
        "layer",
        "operation",
        "input",
        "output",
        "where",
        "fold",
        "cycles",
        "bound",
        "weights",
        "features",
    ]
    _, facts = report_of(network)
    lines = [line for line in lines if "  accelerator  " in line and "  in place" not in line]
    for line, layer in zip(lines, facts.layers, strict=True):
        planned = layer.planned
        size, streamed = planned.weight_bytes, planned.streamed_weight_bytes
        kept = f"{size:,} resident" if not streamed else f"{streamed:,} of {size:,} streamed"
        weights = [f"{size:,} streamed" if streamed == size else kept] if size else []
        features = f"{planned.feature_bytes:,}" + (" spilled" if planned.spilled else "")
        cells = re.split(r" {2,}", line.partition(planned.fold)[2].strip())
        assert cells == [f"{planned.cycles:,}", planned.bound, *weights, features]
    is_large = network == "large"
    assert any(" streamed " in line for line in lines) == any(line.endswith(" spilled") for line in lines) == is_large
    assert any("bytes streamed in every inference" in line for line in rest) == is_large
    assert any("bytes of tensors spilled to external memory" in line for line in rest) == is_large


def test_what_a_layer_is_split_into_and_what_is_in_place_stand_where_they_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.onnx").write_bytes(model("joined"))
    (_, *lines), _ = rows_of(tmp_path / "net.onnx", capsys)
    cells = [re.split(r" {2,}", line) for line in lines]
    assert [(row[1], row[5]) for row in cells if "accelerator" in row] == [
        ("convolution 1x1", "1 words per window, 100% useful"),
        ("convolution 3x3 + table", "9 words per window, 100% useful"),
        ("concatenation", "in place"),
        ("convolution 1x1", "4 words per window, 100% useful"),
        ("max pooling 1x5", "4 of 4 lanes, 5 border classes"),
        ("max pooling 5x1", "4 of 4 lanes, 5 border classes"),
    ]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, ""),
        (1, ", 1 transfer function with a table"),
        (3, ", 3 transfer functions share 1 table"),
    ],
)
def test_transfer_functions_and_the_tables_that_they_share(
    count: int, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = repeated(count)
    made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
    (tmp_path / "net.onnx").write_bytes(made.serialise(opset=21))
    _, rest = rows_of(tmp_path / "net.onnx", capsys)
    assert [line for line in rest if line.startswith("table memory")] == (
        [f"table memory: 256 of 1,024 bytes{shown}"] if count else []
    )
    values = values_of(tmp_path / "net.onnx", capsys)
    assert (values["transfer_functions"], values["transfer_tables"]) == (count, min(count, 1))


def test_some_of_several_transfer_functions_share_a_table() -> None:
    assert tables_text(5, 3) == "5 transfer functions share 3 tables"


def test_a_program_file_is_described_like_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = digits.model_path("qop"), tmp_path / "digits.program"
    target.write_bytes(compile_model(source.read_bytes(), PRESETS["tiny"], str(source)).to_bytes())
    assert values_of(target, capsys) == values_of(source, capsys)


def test_a_program_that_says_nothing_of_what_was_decided_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = compile_model(digits.model_path("qop").read_bytes(), PRESETS["tiny"])
    target = tmp_path / "bare.program"
    target.write_bytes(dataclasses.replace(program, outline=Outline()).to_bytes())
    assert main(["check", str(target), "--config", "tiny"]) == 2
    message = (
        f"{target}: program must have an outline of what its compiler has decided, and has none; compile the model"
    )
    assert message in capsys.readouterr().err


def test_the_documentation_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    table, rest = rows_of(digits.model_path("qop"), capsys, "ecp5-85k")
    shown = "\n".join(f"    {line}".rstrip() for line in (*table, "", *rest))
    assert shown in PAGE.read_text()


@pytest.mark.regress
def test_what_copies_cost_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In sum, and of each layer; of a network that copies nothing there is no such line."""
    path = tmp_path / "net.onnx"
    path.write_bytes(mixed_network(FIRST_ARRANGED + 1, "tiny").model)
    layers = [layer for layer in values_of(path, capsys)["layers"] if layer["copied_bytes"]]
    cycles, moved = (sum(layer[name] for layer in layers) for name in ("predicted_cycles", "copied_bytes"))
    lines = rows_of(path, capsys)[1]
    (line,) = (line for line in lines if line.startswith("copies: "))
    assert re.fullmatch(
        rf"copies: {cycles:,} of [\d,]+ cycles of layers \([\d.]+%\), "
        rf"in {len(layers)} layers? that moves? {moved:,} bytes",
        line,
    )
    assert all(layer["fold"].startswith(f"copies {layer['copied_bytes']:,} bytes, ") for layer in layers)
    assert not any(line.startswith("copies: ") for line in rows_of(digits.model_path("qop"), capsys)[1])


TRIED = (
    Tried(False, 0, 0, 2, 1234, is_taken=True),
    Tried(False, 0, 0, 0, 0, least_cycles=1300),
    Tried(True, 3, 1, 0, 1250),
    Tried(True, 0, 0, 0, 0, refused="conv: too much"),
)


def test_the_plans_that_were_tried_are_told_where_there_are_several() -> None:
    order, none = "channels in the model's order, layers split: none", "windows of several pixels in 0 layers"
    assert tried_lines(TRIED) == [
        f"plan 1: {order}, windows of several pixels in 2 layers, 1,234 cycles predicted, taken",
        f"plan 2: {order}, {none}, left: 1,300 cycles for the array alone",
        f"plan 3: channels in another order, layers split: 3 by rows and 1 by channels, {none}, 1,250 cycles predicted",
        "plan 4: channels in another order, refused: conv: too much",
    ]
    assert tried_lines(TRIED[:1]) == []
    assert tried_lines(TRIED[:2])[0].startswith(
        "plan 1: channels in the model's order, windows of several pixels in 2 layers, 1,234"
    )
    model, least, split, refused = tried_values(TRIED)
    assert [one["predicted_cycles"] for one in (model, least, split, refused)] == [1234, None, 1250, None]
    assert (least["least_cycles"], split["row_layers"], split["channel_layers"]) == (1300, 3, 1)
    assert (model["taken"], least["taken"], refused["refused"]) == (True, False, "conv: too much")
    assert [one["channels"] for one in (model, split)] == ["model", "permuted"]


def test_the_plan_that_is_taken_is_the_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(model("joined"))
    values = values_of(tmp_path / "net.onnx", capsys)
    assert [one["predicted_cycles"] for one in values["tried"] if one["taken"]] == [values["predicted_cycles"]]
