"""The commands on a model: `compile`, `check`, `run` and others, from options to an answer.

A module that takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...golden.config import Config
from ...golden.isa import Opcode
from ...golden.memories import LocalMemory, constant_memories
from ...golden.program.outline import NONE, LayerOutline, Row, Tried
from ...golden.program.program import Program
from ...golden.units import Queue
from ..backend import find_backend
from ..files.configuration import find_config
from ..files.files import check_writable, write_whole
from ..files.terminal import (
    Progress,
    elements_text,
    inference_text,
    macs_of,
    prediction_text,
    shape_text,
    table_text,
    tables_text,
)
from ..model.arrays import assign, load_inputs, sample_count
from ..program import Bodies, BusUse, Speed
from ..session.session import InferenceSession
from ..simulation import cache
from ..simulation.build import AXI, IP
from ..simulation.build import verilog as generate_verilog
from ..simulation.toolchain import ToolError
from .answer import Answer
from .target import Target

# ruff: noqa: PLC0415


def check(model: Path | None, target: Target, progress: Progress, *, supported: bool = False) -> Answer:
    """Show where each layer runs, how fast, and what memory it needs; or the operators that are supported.

    Raises
    ------
    ValueError
        If both are requested, or neither.
    """
    if (model is None) is not supported:
        raise ValueError("one of MODEL and --supported must be given, and not both")
    if model is not None:
        return _checked(model, target, progress)
    from ..supported import listed

    return Answer(*listed(target.config))


def _checked(model: Path, target: Target, progress: Progress) -> Answer:
    from ..model.mac_share import mac_share

    progress("compiling")
    loaded = target.load(model)
    bodies, program, speed = loaded.bodies, loaded.program, target.speed
    table, values = layer_table(program)
    memory, share = memories(program, target.config), mac_share(program, loaded.parts)
    text = [
        table_text(table),
        "",
        *(f"{name}: {used:,} of {size:,} bytes{more}" for name, used, size, more in memory if used or more),
        *core_lines(program, target.config, bodies),
        *copy_lines(program),
        *tried_lines(program.outline.tried),
        prediction_text(program, target.config.multipliers),
        *([speed.text(program.predicted_cycles, program.batch)] if speed else []),
        *share.lines(),
        *(f"note: {note}" for note in program.outline.notes),
    ]
    return Answer(
        "\n".join(text),
        {
            "layers": values,
            "memories": {name: {"used_bytes": used, "bytes": size} for name, used, size, _ in memory},
            "transfer_functions": program.outline.transfer_functions,
            "transfer_tables": _transfer_tables(program),
            "cores": core_values(program, bodies),
            "tried": tried_values(program.outline.tried),
            "predicted_cycles": program.predicted_cycles,
            **(speed.values(program.predicted_cycles, program.batch) if speed else {}),
            "macs": macs_of(program),
            **share.values(),
            "notes": program.outline.notes,
        },
    )


def compile_(model: Path, output: Path, target: Target, progress: Progress) -> Answer:
    """Compile to a program file."""
    from ..model.mac_share import mac_share

    check_writable(output)
    progress("compiling")
    loaded = target.load(model)
    program = loaded.program
    data, share = program.to_bytes(), mac_share(program, loaded.parts)
    write_whole(output, data)
    values = {
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "batch": program.batch,
        "file_bytes": len(data),
        "arena_bytes": program.arena_bytes,
    }
    prediction = prediction_text(program, target.config.multipliers)
    return Answer("\n".join([f"{output}: {len(data):,} bytes, {prediction}", *share.lines()]), values)


def verilog(output: Path, config: Config, progress: Progress, *, trace: bool = False) -> Answer:
    """Generate Verilog, with the pins of the trace if requested."""
    check_writable(output)
    text = generate_verilog(config, top=AXI if trace else IP, progress=progress)
    write_whole(output, text.encode())
    return Answer(f"{output}: {len(text):,} bytes of Verilog", {"file_bytes": len(text)})


def synth(
    device: str,
    speed: int | None,
    mhz: float | None,
    seeds: Sequence[int],
    config: str | None,
    cores: int | None,
    progress: Progress,
) -> Answer:
    """Measure area and clock; ``config`` and ``mhz`` are by default the device's own.

    Raises
    ------
    ValueError
        If there is no such device, speed grade, clock or configuration; nothing has been written then.
    ToolError
        If a tool is missing or fails.
    """
    from ...synth import flow, tools
    from ...synth.report import ReportError

    target = flow.find_target(device, speed, mhz)
    found = find_config(config or target.preset, cores)
    folder = cache.default_root() / "synth" / f"{found.hash:08x}-{target.name}-{target.speed}"
    try:
        with cache.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            progress("waiting for another synthesis of this configuration")
            with cache.locked(folder / "lock"):
                measured = flow.synthesise(
                    found,
                    folder=folder,
                    device=device,
                    speed=speed,
                    mhz=mhz,
                    seeds=seeds,
                    progress=progress,
                )
    except (tools.FlowError, ReportError) as error:
        raise ToolError(str(error)) from error
    return Answer(f"{measured.as_text()}\nlogs            {folder}", measured.as_dict(), not measured.misses())


def demo(form: str, config: str, progress: Progress) -> Answer:
    """Classify the digits."""
    from ...examples import digits
    from . import demo as digits_demo

    found = find_config(config)
    result = digits_demo.run(found, form=form, progress=progress)
    images, shown = digits.images(), 6
    text = [
        digits_demo.picture(images[:shown]),
        "   ".join(f"{f'predicted {result.predictions[i]}, is {result.labels[i]}':<16}" for i in range(shown)),
        "",
        f"{len(images)} held-out digits, {digits.model_path(form).name} on the simulated accelerator ({config})",
        f"accuracy          {result.accuracy:.2%}  (ONNX Runtime {result.reference_accuracy:.2%})",
        f"bytes compared    {result.bytes:,}, {result.mismatched_bytes:,} differ from ONNX Runtime's",
        f"cycles per image  {result.cycles:,}  (predicted {result.predicted_cycles:,})",
        f"utilisation       {result.utilisation:.1%} of {result.multipliers} multipliers, {result.macs:,} products",
    ]
    values = {
        "accuracy": result.accuracy,
        "reference_accuracy": result.reference_accuracy,
        "images": len(images),
        "bytes": result.bytes,
        "mismatched_bytes": result.mismatched_bytes,
        "cycles": result.cycles,
        "predicted_cycles": result.predicted_cycles,
        "macs": result.macs,
        "utilisation": round(result.utilisation, 4),
    }
    return Answer("\n".join(text), values, result.is_right)


# The tables of `lutterfly check`: for each layer where it runs, its cycles, and its memory.

HEAD = ("layer", "operation", "input", "output", "where", "fold", "cycles", "bound", "weights", "features")
#: Keys of a layer on the accelerator; null for layers on the host, and for those that need no command.
_VALUES = (
    "fold",
    "bound",
    "macs",
    "array_cycles",
    "bus_cycles",
    "connections",
    "live_connections",
    "dense_words",
    "model_words",
    "words",
    "dense_cycles",
    "copied_bytes",
    "weight_bytes",
    "streamed_weight_bytes",
    "feature_bytes",
    "loaded_bytes",
    "stored_bytes",
    "in_parts",
    "spilled",
)

#: Name of a memory, used bytes, all bytes, and a remark.
Memory = tuple[str, int, int, str]


def layer_table(program: Program) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    """List every operation in order of execution, including the host's: rows of text below ``HEAD``, and values for
    JSON."""
    table, values = [HEAD], []
    for row in program.outline.rows:
        numbered = zip(program.cores, row.layers, strict=True)
        layers = [core.layers[number] for core, number in numbered if number != NONE]
        # Of several cores the slowest represents all.
        slowest = max(layers, key=lambda layer: layer.cycles, default=None)
        table.append(_cells(row, slowest, [layer.cycles for layer in layers]))
        values.append(
            {
                "name": row.name,
                "operation": row.operation,
                "where": row.where,
                "input_shape": row.input_shape,
                "output_shape": row.output_shape,
                "predicted_cycles": slowest and slowest.cycles,
                "core_cycles": [layer.cycles for layer in layers],
                **{name: slowest and getattr(slowest, name) for name in _VALUES},
            }
        )
    return table, values


def memories(program: Program, config: Config) -> list[Memory]:
    """Return the use of each memory, in the core where it is greatest: the peak of the feature memory, the resident
    data of the others."""
    functions, size = program.outline.transfer_functions, program.outline.spilled_bytes
    more = f", {size:,} bytes of tensors spilled to external memory" if size else ""
    used = max(layer.feature_bytes for layer in program.layers)
    found = [("feature memory", used, config.memory.feature_bytes, more)]
    for memory in constant_memories(config):
        resident = max(core.outline.resident_bytes(memory) for core in program.cores)
        streamed = max(core.outline.streamed_bytes(memory) for core in program.cores)
        more = f", {streamed:,} bytes streamed in every inference" if streamed else ""
        if memory is LocalMemory.TABLE and functions:
            more += f", {tables_text(functions, _transfer_tables(program))}"
        found.append((memory.title, resident, config.size_bytes(memory), more))
    return found


def _transfer_tables(program: Program) -> int:
    """Return the tables of the table memory, of the core that has most."""
    return max(core.outline.transfer_tables for core in program.cores)


def tried_values(tried: Sequence[Tried]) -> list[dict[str, Any]]:
    """The ways to plan the network that the compiler has tried, and what each takes, in order."""
    return [
        {
            "channels": "permuted" if one.is_permuted else "model",
            "row_layers": one.row_layers,
            "channel_layers": one.channel_layers,
            "wide_layers": one.wide_layers,
            "predicted_cycles": one.predicted_cycles or None,
            "least_cycles": one.least_cycles or None,
            "refused": one.refused or None,
            "taken": one.is_taken,
        }
        for one in tried
    ]


def tried_lines(tried: Sequence[Tried]) -> list[str]:
    """The same in words, where there are several."""
    if len(tried) < 2:
        return []
    is_split = any(one.row_layers or one.channel_layers for one in tried)
    return [f"plan {number}: {_ways(one, is_split=is_split)}, {_taken(one)}" for number, one in enumerate(tried, 1)]


def _ways(one: Tried, *, is_split: bool) -> str:
    """Return the properties in which plans differ, as text; a refused plan has no split and no windows."""
    said = ["channels in another order" if one.is_permuted else "channels in the model's order"]
    if one.refused:
        return said[0]
    if is_split:
        shares = [(one.row_layers, "by rows"), (one.channel_layers, "by channels")]
        split = " and ".join(f"{count} {how}" for count, how in shares if count)
        said.append(f"layers split: {split or 'none'}")
    said.append(f"windows of several pixels in {one.wide_layers} layer{'s' * (one.wide_layers != 1)}")
    return ", ".join(said)


def _taken(one: Tried) -> str:
    """Return the result of a plan as text."""
    if one.refused:
        return f"refused: {one.refused}"
    if one.least_cycles:
        return f"left: {one.least_cycles:,} cycles for the array alone"
    return f"{one.predicted_cycles:,} cycles predicted{', taken' * one.is_taken}"


def copy_lines(program: Program) -> list[str]:
    """Return lines on the cost of copies of elements that are not in place, where there are any."""
    copies = [layer for layer in program.layers if layer.copied_bytes]
    if not copies:
        return []
    cycles, all_cycles = (sum(layer.cycles for layer in layers) for layers in (copies, program.layers))
    moved = sum(layer.copied_bytes for layer in copies)
    text = f"copies: {cycles:,} of {all_cycles:,} cycles of layers ({cycles / all_cycles:.1%}), in {len(copies)} "
    return [f"{text}layer{'s' * (len(copies) > 1)} that move{'s' * (len(copies) == 1)} {moved:,} bytes"]


def core_values(program: Program, bodies: Bodies) -> list[dict[str, int]]:
    """Return the prediction for each core, in cycles: until it is done, steps, waits at barriers, and beats on the
    bus."""
    return [
        {
            "predicted_cycles": max((command.end for queue in body.values() for command in queue), default=0),
            "array_cycles": sum(layer.array_cycles for layer in core.layers),
            "bus_cycles": sum(layer.bus_cycles for layer in core.layers),
            "barriers": sum(command.opcode is Opcode.BARRIER for command in body[Queue.DMA]),
            "barrier_cycles": sum(
                command.end - command.begin for command in body[Queue.DMA] if command.opcode is Opcode.BARRIER
            ),
        }
        for core, body in zip(program.cores, bodies, strict=True)
    ]


def core_lines(program: Program, config: Config, bodies: Bodies) -> list[str]:
    """Return the same as text, where there are several cores, and whether their shared bus is the bottleneck."""
    values = core_values(program, bodies)
    if len(values) == 1:
        return []
    lines = [
        f"core {number}: {core['predicted_cycles']:,} cycles predicted, {core['array_cycles']:,} with a step, "
        f"{core['barrier_cycles']:,} at {core['barriers']} barriers"
        for number, core in enumerate(values)
    ]
    if config.cluster.shared_port:
        lines.append(f"shared bus: {BusUse.of(config, bodies, program.predicted_cycles).text}")
    return lines


def _cells(row: Row, layer: LayerOutline | None, cycles: Sequence[int]) -> tuple[str, ...]:
    where = (row.name, row.operation, _shape(row.input_shape), _shape(row.output_shape), row.where)
    if layer is None:
        return (*where, "in place" if row.where == "accelerator" else "", "", "", "", "")
    taken = _cycles(layer) if len(cycles) == 1 else " / ".join(f"{count:,}" for count in cycles)
    return (*where, _fold(layer), taken, layer.bound, _weights(layer), _features(layer))


def _fold(layer: LayerOutline) -> str:
    """Return the fold of its input, and the share of its connections, where it has either."""
    if not layer.is_sparse:
        return layer.fold
    density = layer.live_connections / layer.connections
    before = layer.model_words / layer.dense_words
    permuted = f", {before:.0%} in the model's order" if layer.model_words != layer.words else ""
    return f"{layer.fold} for {density:.0%} of the connections{permuted}"


def _cycles(layer: LayerOutline) -> str:
    """Return the predicted cycles, and those with all connections."""
    dense = f" of {layer.dense_cycles:,} dense" if layer.is_sparse else ""
    return f"{layer.cycles:,}{dense}"


def _weights(layer: LayerOutline) -> str:
    """Return the bytes of the weights, and whether they are resident."""
    size, streamed = layer.weight_bytes, layer.streamed_weight_bytes
    if not size:
        return ""
    if 0 < streamed < size:
        return f"{streamed:,} of {size:,} streamed"
    return f"{size:,} {'streamed' if streamed else 'resident'}"


def _features(layer: LayerOutline) -> str:
    """Return the bytes of the layer's tensors, whether they are whole, and whether one is spilled to external
    memory."""
    return f"{layer.feature_bytes:,}" + (" spilled" if layer.spilled else " in parts" if layer.in_parts else "")


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


# The command `run`: inference on files, and its report.

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)


def run(
    model: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    report: Path | None,
    backend: str,
    target: Target,
    progress: Progress,
) -> Answer:
    """Run inference on files."""
    from .. import report as reports

    if report:
        find_backend(backend).need_accelerator("report")
        if target.transport is not None:
            raise ValueError("report must be of a simulated accelerator, which shows every cycle; leave out --device")
        reports.check_ending(report)
        reports.check_available()
    given = target.load(model)
    bodies = given.bodies if report else None
    session = InferenceSession(given, target.config, target.transport, progress=progress, backend=backend)
    sources = assign("input", inputs, session.get_inputs())
    targets = assign("output", outputs, session.get_outputs())
    feeds = load_inputs(sources, session.get_inputs())
    names = [info.name for info in session.get_outputs()]
    paths = [Path(path) for path in targets.values()]
    if report:
        reports.check_target(report, (model, *map(Path, sources.values()), *paths))
    for path in paths:
        check_writable(path)
    results = dict(zip(names, session.run(None, feeds), strict=True))
    for name, path in targets.items():
        stream = io.BytesIO()
        np.save(stream, results[name])
        write_whole(Path(path), stream.getvalue())
    answered = _answer(session, results, targets, feeds, target.speed)
    if report is None or bodies is None:
        return answered
    progress("drawing the report")
    start = (len(session.counters) - 1) * session.batch
    last = {name: array[start:] for name, array in feeds.items()}
    write_whole(report, reports.make(session, bodies, last, model.name, target.speed))
    return Answer(f"{answered.text}\nreport: {report}", answered.values | {"report": str(report)})


def _answer(
    session: InferenceSession,
    results: Mapping[str, np.ndarray],
    targets: Mapping[str, str],
    feeds: Mapping[str, np.ndarray],
    speed: Speed | None,
) -> Answer:
    """Return the answer: results and cycles."""
    from ..model.mac_share import mac_share

    program, share = session.program, mac_share(session.program, session.loaded.parts)
    lines, cycles, values = _measured(session) if session.backend.has_accelerator else _predicted(session)
    if speed:
        lines.insert(1, speed.text(cycles, program.batch))
        values |= speed.values(cycles, program.batch)
    values = {
        "backend": session.backend.name,
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "samples": sample_count(feeds),
        "batch": program.batch,
        "outputs": {name: list(array.shape) for name, array in results.items()},
        **values,
    }
    text = [
        f"{name}: {array.dtype} {shape_text(array.shape)}"
        + (f" -> {targets[name]}" if name in targets else elements_text(array))
        for name, array in results.items()
    ]
    return Answer("\n".join([*text, lines[0], *share.lines(), *lines[1:]]), values)


def _measured(session: InferenceSession) -> tuple[list[str], int, dict[str, Any]]:
    """Return the cycles of the last inference: lines of text, the number, and values for JSON."""
    # The counters are those of the last inference here: a report makes one more, which changes them.
    program, counters, multipliers = session.program, session.counters[-1], session.config.multipliers
    cycles = counters["cycles"]
    utilisation = program.utilisation(cycles, multipliers)
    measured = f"{cycles:,} cycles for {inference_text(program)} (predicted {program.predicted_cycles:,})"
    text = [f"{measured}, {utilisation:.1%} of {multipliers} multipliers busy"]
    if len(session.counters) == 1:
        text.append("the first inference fetches the program as well; later ones find it in the accelerator")
    return text, cycles, {"cycles": cycles, "utilisation": round(utilisation, 4), "counters": counters}


def _predicted(session: InferenceSession) -> tuple[list[str], int, dict[str, Any]]:
    """Return the same of the prediction, where there is no accelerator."""
    prediction = prediction_text(session.program, session.config.multipliers)
    return [f"computed by the {session.backend.title}: {prediction}"], session.program.predicted_cycles, {}
