"""What the commands do: from the command line's words to an answer.

Whatever takes long to import is imported by the command that needs it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files.configuration import find_config
from ..files.numpy_files import load_archive
from ..files.phrases import elements_text, inference_text, macs_of, prediction_text, shape_text, table_text
from ..files.progress import Progress
from ..files.writing import check_writable, write_whole
from ..model.arrays import sample_count
from ..model.model_file import read_model_file
from ..model.tensor_files import assign, load_inputs
from ..session.loading import load_outcome, load_program
from ..session.session import InferenceSession
from ..simulation import cache
from ..simulation.build import verilog as generate_verilog
from ..simulation.toolchain import ToolError
from .answer import Answer


def check(model: Path, config: str, progress: Progress) -> Answer:
    """Show where each layer runs, how fast, and what memory it needs."""
    from ..model.mac_share import mac_share
    from . import check as layers

    progress("compiling")
    found = find_config(config)
    program, outcome, graph = load_outcome(model, found)
    table, values = layers.layer_table(graph, outcome)
    memories, share = layers.memories(outcome), mac_share(program)
    text = [
        table_text(table),
        "",
        *(f"{name}: {used:,} of {size:,} bytes{more}" for name, used, size, more in memories if used or more),
        prediction_text(program, found.multipliers),
        *share.lines(),
        *(f"note: {note}" for note in outcome.graph.notes),
    ]
    return Answer(
        "\n".join(text),
        {
            "layers": values,
            "memories": {name: {"used_bytes": used, "bytes": size} for name, used, size, _ in memories},
            "transfer_functions": outcome.transfer_functions,
            "transfer_tables": outcome.transfer_tables,
            "predicted_cycles": program.predicted_cycles,
            "macs": macs_of(program),
            **share.values(),
            "notes": outcome.graph.notes,
        },
    )


def compile_(model: Path, output: Path, batch: int | None, config: str, progress: Progress) -> Answer:
    """Compile to a program file."""
    from ..model.mac_share import mac_share

    check_writable(output)
    progress("compiling")
    program = load_program(model, config, batch=batch)
    data, share = program.to_bytes(), mac_share(program)
    write_whole(output, data)
    values = {
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "batch": program.batch,
        "file_bytes": len(data),
        "arena_bytes": program.arena_bytes,
    }
    prediction = prediction_text(program, find_config(config).multipliers)
    return Answer("\n".join([f"{output}: {len(data):,} bytes, {prediction}", *share.lines()]), values)


def quantize(
    model: Path, calibrate: Path, test: Path | None, output: Path | None, config: str, progress: Progress
) -> Answer:
    """Quantise a float model, and say whether the accelerator runs the result."""
    from ..model.mac_share import mac_share
    from ..model.runtime import silence_others
    from ..quantize import static_quantisation as quantisation
    from ..quantize.calibration import split

    silence_others()
    found = find_config(config)
    data, target = read_model_file(model), output or model.with_name(f"{model.stem}_int8.onnx")
    samples, others = load_archive(calibrate), load_archive(test) if test else None
    check_writable(target)
    for other, kind in ((model, "the model"), (calibrate, "the samples"), (test, "the samples")):
        if other and target.resolve() == other.resolve():
            raise ValueError(f"output must be another file than {kind}, not {target}")
    float_model = quantisation.read_float_model(data, str(model))
    quantisation.check_samples(data, samples, str(calibrate))
    if others is not None:
        quantisation.check_samples(data, others, str(test))
    parts = split(samples, others, str(calibrate))
    quantised = quantisation.quantize_checked(
        float_model, parts.calibrating, name=str(model), overrides={}, progress=progress
    )
    write_whole(target, quantised)
    errors = quantisation.relative_errors(data, quantised, parts.judging, progress)
    count, judges = sample_count(parts.calibrating), sample_count(parts.judging)
    values: dict[str, Any] = {"samples": count, "file_bytes": len(quantised), "relative_errors": errors}
    values |= {"judging_samples": judges, "judges": parts.judges, "warnings": parts.warnings}
    text = [
        f"{target}: {len(quantised):,} bytes, calibrated with {count} samples",
        *(
            f"output {name}: {error:.2%} from the float model's, on {parts.judges} (root mean square of {judges})"
            for name, error in errors.items()
        ),
        *(f"warning: {warning}" for warning in parts.warnings),
    ]
    progress("compiling")
    try:
        program = load_program(quantised, found, name=str(target))
    except ValueError as error:
        text.append(f"the accelerator does not run it: {error}")
        return Answer("\n".join(text), values | {"error": str(error)}, is_right=False)
    share = mac_share(program)
    text += [prediction_text(program, found.multipliers), *share.lines()]
    values |= {"predicted_cycles": program.predicted_cycles, "macs": macs_of(program), **share.values()}
    values["warnings"] = [*parts.warnings, *share.warnings]
    return Answer("\n".join(text), values)


def run(
    model: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    report: Path | None,
    batch: int | None,
    config: str,
    progress: Progress,
) -> Answer:
    """Run inference on files."""
    from .. import report as reports
    from ..model.mac_share import mac_share

    found = find_config(config)
    outcome = None
    if report:
        reports.check_ending(report)
        reports.check_available()
        program, outcome, _ = load_outcome(model, found, batch=batch)
    session = InferenceSession(program if outcome else model, found, progress=progress, batch=batch)
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
    for name, target in targets.items():
        stream = io.BytesIO()
        np.save(stream, results[name])
        write_whole(Path(target), stream.getvalue())
    # Before the report's own inference, which leaves other counters.
    counters = session.counters[-1]
    if report and outcome:
        progress("drawing the report")
        start = (len(session.counters) - 1) * session.batch
        last = {name: array[start:] for name, array in feeds.items()}
        write_whole(report, reports.make(session, outcome, last, model.name))
    program, cycles = session.program, counters["cycles"]
    share = mac_share(program)
    utilisation = program.utilisation(cycles, found.multipliers)
    values = {
        "cycles": cycles,
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "utilisation": round(utilisation, 4),
        "samples": sample_count(feeds),
        "batch": program.batch,
        "outputs": {name: list(array.shape) for name, array in results.items()},
        "counters": counters,
    }
    if report:
        values["report"] = str(report)
    shown = [
        f"{name}: {array.dtype} {shape_text(array.shape)}"
        + (f" -> {targets[name]}" if name in targets else elements_text(array))
        for name, array in results.items()
    ]
    text = (
        f"{cycles:,} cycles for {inference_text(program)} (predicted {program.predicted_cycles:,}), "
        f"{utilisation:.1%} of {found.multipliers} multipliers busy"
    )
    text = "\n".join([text, *share.lines()])
    if len(session.counters) == 1:
        text += "\nthe first inference fetches the program as well; later ones find it in the accelerator"
    if report:
        text += f"\nreport: {report}"
    return Answer("\n".join([*shown, text]), values)


def verify(model: Path, samples: int, seed: int, batch: int | None, config: str, progress: Progress) -> Answer:
    """Compare everything with everything."""
    from ..model.mac_share import mac_share
    from ..session.verify import verify as verify_model

    found = find_config(config)
    progress("compiling")
    result = verify_model(read_model_file(model), found, samples, seed, batch=batch, name=str(model), progress=progress)
    table = [("tensor", "bytes", "golden", "machine", "RTL")]
    table += [
        (
            tensor.name,
            f"{tensor.bytes:,}",
            *("-" if count is None else f"{count:,}" for count in (tensor.golden, tensor.machine, tensor.rtl)),
        )
        for tensor in result.tensors
    ]
    layers = [("layer", "predicted", "measured", "")]
    layers += [
        (layer.name, f"{layer.predicted:,}", f"{layer.measured:,}", "" if layer.is_right else "wrong")
        for layer in result.layers
    ]
    share = mac_share(result.program)
    against = "golden functions" if result.reference else "ONNX Runtime"
    text = [
        f"bytes that differ from those of {against}, in {samples} samples ('-': fused, not visible):",
        table_text(table),
        "",
        "cycles:",
        table_text(layers),
        "",
        f"{result.bytes:,} bytes compared, {result.mismatched_bytes:,} differ",
        f"{result.cycles:,} cycles for {inference_text(result.program)}, predicted {result.program.predicted_cycles:,}",
        *share.lines(),
    ]
    if result.reference:
        text.append(f"no comparison with ONNX Runtime: {result.reference}")
    if result.unseen:
        text.append(
            f"compared with the golden functions, as ONNX Runtime rounds float operators on the host otherwise "
            f"where it shows them: {', '.join(result.unseen)}"
        )
    text.append(f"verdict: {result.verdict}")
    values = {
        "bytes_right": result.bytes_right,
        "cycles_right": result.cycles_right,
        "verdict": result.verdict,
        "bytes": result.bytes,
        "mismatched_bytes": result.mismatched_bytes,
        "cycles": result.cycles,
        "predicted_cycles": result.program.predicted_cycles,
        "macs": macs_of(result.program),
        **share.values(),
        "utilisation": round(result.program.utilisation(result.cycles, found.multipliers), 4),
        "samples": samples,
        "batch": result.program.batch,
        "reference": result.reference or "onnxruntime",
        "unseen": result.unseen,
        "random": result.random,
        "tensors": [
            {
                "name": tensor.name,
                "bytes": tensor.bytes,
                "golden": tensor.golden,
                "machine": tensor.machine,
                "rtl": tensor.rtl,
            }
            for tensor in result.tensors
        ],
        "layers": [
            {"name": layer.name, "predicted": layer.predicted, "measured": layer.measured, "right": layer.is_right}
            for layer in result.layers
        ],
    }
    return Answer("\n".join(text), values, result.bytes_right, result.cycles_right)


def verilog(output: Path, config: str, progress: Progress) -> Answer:
    """Generate Verilog."""
    check_writable(output)
    text = generate_verilog(find_config(config), progress=progress)
    write_whole(output, text.encode())
    return Answer(f"{output}: {len(text):,} bytes of Verilog", {"file_bytes": len(text)})


def table(
    operators: Sequence[str],
    model: Path | None,
    source: str,
    target: str,
    output: Path | None,
    plot: Path | None,
    limit: str | None,
    progress: Progress,
) -> Answer:
    """Compute a transfer table, and write its ROM as Verilog."""
    from ...golden import scheme_names
    from .. import report as reports
    from ..transfer import answer, facts, pointwise, verilog
    from ..transfer import operators as chains
    from ..transfer.block_rams import BlockRams

    if bool(operators) == (model is not None):
        raise ValueError(
            "operator or model must be given, and not both: --operator Tanh, or --model FILE with a chain of pointwise "
            "operators; --operator Identity requantises"
        )
    schemes = scheme_names.parse(source), scheme_names.parse(target)
    there_are = BlockRams.parse(limit) if limit else None
    if plot:
        reports.check_ending(plot, "plot")
        reports.check_available("plot")
    for written, path in (("output", output), ("plot", plot)):
        if path:
            check_writable(path)
            if model and path.resolve() == model.resolve():
                raise ValueError(f"{written} must be another file than the model, not {path}")
    if output and plot and output.resolve() == plot.resolve():
        raise ValueError(f"plot must be another file than the Verilog, not {plot}")
    progress("computing the table")
    name = str(model) if model else ", ".join(operators)
    chain = chains.read_chain(read_model_file(model), name) if model else chains.chain_of(operators)
    found = facts.tabulate_chain(name, pointwise.Pointwise(chain, name), *schemes)
    if there_are:
        there_are.check(found.rom)
    text, values = [answer.summary(found)], found.values()
    if output:
        progress("generating Verilog")
        module = verilog.module_name(output)
        data = verilog.table_verilog(found, module).encode()
        write_whole(output, data)
        text.append(f"{output}: {len(data):,} bytes of Verilog, module {module}")
        values |= {"module": module, "file_bytes": len(data)}
    if plot:
        from ..transfer.plot import plot as draw

        progress("drawing the plot")
        write_whole(plot, draw(found).encode())
        text.append(f"plot: {plot}")
        values["plot"] = str(plot)
    if not output:
        text.append(answer.shown_codes(found))
    return Answer("\n".join(text), values)


def synth(device: str, seeds: int, config: str, progress: Progress) -> Answer:
    """Measure area and clock."""
    from ...synth import flow
    from ...synth.report import ReportError

    found = find_config(config)
    folder = cache.default_root() / "synth" / f"{found.hash:08x}"
    try:
        with cache.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            progress("waiting for another synthesis of this configuration")
            with cache.locked(folder / "lock"):
                measured = flow.synthesise(
                    found, folder=folder, device=device, seeds=tuple(range(1, seeds + 1)), progress=progress
                )
    except (flow.FlowError, ReportError) as error:
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
