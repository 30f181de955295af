"""What the commands do: from the command line's words to a report, as text and as values for JSON.

Whatever takes long to import is imported by the command that needs it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..golden.program import Program
from .arrays import TensorInfo, check_feed
from .configuration import find_config
from .files import check_writable, write_whole
from .loading import load_outcome, load_program
from .model_file import read_model_file
from .numpy_files import load_archive, load_array
from .progress import Progress
from .session import InferenceSession
from .simulation import cache
from .simulation.build import verilog as generate_verilog
from .simulation.toolchain import ToolError


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of a command.

    Attributes
    ----------
    text : str
        For people.
    values : dict
        For scripts.
    is_right : bool
        False if something that was checked is wrong.
    is_predicted : bool
        False if cycles that were measured are not those that were predicted.
    """

    text: str
    values: dict[str, Any]
    is_right: bool = True
    is_predicted: bool = True


def check(model: Path, config: str, progress: Progress) -> Report:
    """Show where each layer runs, how fast, and what memory it needs."""
    from . import check as layers
    from .mac_share import mac_share

    progress("compiling")
    found = find_config(config)
    program, outcome, graph = load_outcome(model, found)
    table, values = layers.layer_table(graph, outcome)
    memories, share = layers.memories(outcome), mac_share(program)
    text = [
        _table(table),
        "",
        *(f"{name}: {used:,} of {size:,} bytes{more}" for name, used, size, more in memories if used or more),
        _prediction(program, found.multipliers),
        *share.lines(),
        *(f"note: {note}" for note in outcome.graph.notes),
    ]
    return Report(
        "\n".join(text),
        {
            "layers": values,
            "memories": {name: {"used_bytes": used, "bytes": size} for name, used, size, _ in memories},
            "predicted_cycles": program.predicted_cycles,
            "macs": _macs(program),
            **share.values(),
            "notes": outcome.graph.notes,
        },
    )


def compile_(model: Path, output: Path, batch: int | None, config: str, progress: Progress) -> Report:
    """Compile to a program file."""
    from .mac_share import mac_share

    check_writable(output)
    progress("compiling")
    program = load_program(model, config, batch=batch)
    data, share = program.to_bytes(), mac_share(program)
    write_whole(output, data)
    values = {
        "predicted_cycles": program.predicted_cycles,
        "macs": _macs(program),
        **share.values(),
        "batch": program.batch,
        "file_bytes": len(data),
        "arena_bytes": program.arena_bytes,
    }
    prediction = _prediction(program, find_config(config).multipliers)
    return Report("\n".join([f"{output}: {len(data):,} bytes, {prediction}", *share.lines()]), values)


def quantize(model: Path, calibrate: Path, output: Path | None, config: str, progress: Progress) -> Report:
    """Quantise a float model, and say whether the accelerator runs the result."""
    from . import quantize as quantisation
    from .mac_share import mac_share

    found = find_config(config)
    data, target = read_model_file(model), output or model.with_name(f"{model.stem}_int8.onnx")
    samples = load_archive(calibrate)
    check_writable(target)
    for other, kind in ((model, "the model"), (calibrate, "the samples")):
        if target.resolve() == other.resolve():
            raise ValueError(f"output must be another file than {kind}, not {target}")
    quantised = quantisation.quantize(data, samples, name=str(model), origin=str(calibrate), progress=progress)
    write_whole(target, quantised)
    errors = quantisation.relative_errors(data, quantised, samples, progress)
    count = len(next(iter(samples.values())))
    values: dict[str, Any] = {"samples": count, "file_bytes": len(quantised), "relative_errors": errors}
    text = [
        f"{target}: {len(quantised):,} bytes, calibrated with {count} samples",
        *(f"output {name}: {error:.2%} from the float model's (root mean square)" for name, error in errors.items()),
    ]
    progress("compiling")
    try:
        program = load_program(quantised, found, name=str(target))
    except ValueError as error:
        text.append(f"the accelerator does not run it: {error}")
        return Report("\n".join(text), values | {"error": str(error)}, is_right=False)
    share = mac_share(program)
    text += [_prediction(program, found.multipliers), *share.lines()]
    values |= {"predicted_cycles": program.predicted_cycles, "macs": _macs(program), **share.values()}
    return Report("\n".join(text), values)


def run(
    model: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    report: Path | None,
    batch: int | None,
    config: str,
    progress: Progress,
) -> Report:
    """Run inference on files."""
    from . import report as reports
    from .mac_share import mac_share

    found = find_config(config)
    outcome = None
    if report:
        reports.check_available()
        program, outcome, _ = load_outcome(model, found, batch=batch)
    session = InferenceSession(program if outcome else model, found, progress=progress, batch=batch)
    sources = assign("input", inputs, session.get_inputs())
    targets = assign("output", outputs, session.get_outputs())
    feeds = _load_inputs(sources, session.get_inputs())
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
    macs = _macs(program)
    utilisation = macs / (cycles * found.multipliers)
    values = {
        "cycles": cycles,
        "predicted_cycles": program.predicted_cycles,
        "macs": macs,
        **share.values(),
        "utilisation": round(utilisation, 4),
        "samples": len(next(iter(feeds.values()))),
        "batch": program.batch,
        "outputs": {name: list(array.shape) for name, array in results.items()},
        "counters": counters,
    }
    if report:
        values["report"] = str(report)
    shown = [
        f"{name}: {array.dtype} {_shape(array.shape)}" + (f" -> {targets[name]}" if name in targets else _brief(array))
        for name, array in results.items()
    ]
    text = (
        f"{cycles:,} cycles for {_inference(program)} (predicted {program.predicted_cycles:,}), "
        f"{utilisation:.1%} of {found.multipliers} multipliers busy"
    )
    text = "\n".join([text, *share.lines()])
    if len(session.counters) == 1:
        text += "\nthe first inference fetches the program as well; later ones find it in the accelerator"
    if report:
        text += f"\nreport: {report}"
    return Report("\n".join([*shown, text]), values)


def verify(model: Path, samples: int, seed: int, batch: int | None, config: str, progress: Progress) -> Report:
    """Compare everything with everything."""
    from .mac_share import mac_share
    from .verify import verify as verify_model

    found = find_config(config)
    progress("compiling")
    report = verify_model(read_model_file(model), found, samples, seed, batch=batch, name=str(model), progress=progress)
    table = [("tensor", "bytes", "golden", "machine", "RTL")]
    table += [
        (
            tensor.name,
            f"{tensor.bytes:,}",
            *("-" if count is None else f"{count:,}" for count in (tensor.golden, tensor.machine, tensor.rtl)),
        )
        for tensor in report.tensors
    ]
    layers = [("layer", "predicted", "measured", "")]
    layers += [
        (layer.name, f"{layer.predicted:,}", f"{layer.measured:,}", "" if layer.is_right else "wrong")
        for layer in report.layers
    ]
    share = mac_share(report.program)
    against = "golden functions" if report.reference else "ONNX Runtime"
    text = [
        f"bytes that differ from those of {against}, in {samples} samples ('-': fused, not visible):",
        _table(table),
        "",
        "cycles:",
        _table(layers),
        "",
        f"{report.bytes:,} bytes compared, {report.mismatched_bytes:,} differ",
        f"{report.cycles:,} cycles for {_inference(report.program)}, predicted {report.program.predicted_cycles:,}",
        *share.lines(),
    ]
    if report.reference:
        text.append(f"no comparison with ONNX Runtime: {report.reference}")
    if report.unseen:
        text.append(
            f"compared with the golden functions, as ONNX Runtime rounds float operators on the host otherwise "
            f"where it shows them: {', '.join(report.unseen)}"
        )
    text.append(f"verdict: {report.verdict}")
    values = {
        "bytes_right": report.bytes_right,
        "cycles_right": report.cycles_right,
        "verdict": report.verdict,
        "bytes": report.bytes,
        "mismatched_bytes": report.mismatched_bytes,
        "cycles": report.cycles,
        "predicted_cycles": report.program.predicted_cycles,
        "macs": _macs(report.program),
        **share.values(),
        "utilisation": round(_macs(report.program) / (report.cycles * found.multipliers), 4),
        "samples": samples,
        "batch": report.program.batch,
        "reference": report.reference or "onnxruntime",
        "unseen": report.unseen,
        "tensors": [
            {
                "name": tensor.name,
                "bytes": tensor.bytes,
                "golden": tensor.golden,
                "machine": tensor.machine,
                "rtl": tensor.rtl,
            }
            for tensor in report.tensors
        ],
        "layers": [
            {"name": layer.name, "predicted": layer.predicted, "measured": layer.measured, "right": layer.is_right}
            for layer in report.layers
        ],
    }
    return Report("\n".join(text), values, report.bytes_right, report.cycles_right)


def verilog(output: Path, config: str, progress: Progress) -> Report:
    """Generate Verilog."""
    check_writable(output)
    text = generate_verilog(find_config(config), progress=progress)
    write_whole(output, text.encode())
    return Report(f"{output}: {len(text):,} bytes of Verilog", {"file_bytes": len(text)})


def synth(device: str, seeds: int, config: str, progress: Progress) -> Report:
    """Measure area and clock."""
    from ..synth import flow
    from ..synth.report import ReportError

    found = find_config(config)
    folder = cache.default_root() / "synth" / f"{found.hash:08x}"
    try:
        with cache.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            progress("waiting for another synthesis of this configuration")
            with cache.locked(folder / "lock"):
                report = flow.synthesise(
                    found, folder=folder, device=device, seeds=tuple(range(1, seeds + 1)), progress=progress
                )
    except (flow.FlowError, ReportError) as error:
        raise ToolError(str(error)) from error
    return Report(f"{report.as_text()}\nlogs            {folder}", report.as_dict(), not report.misses())


def demo(form: str, config: str, progress: Progress) -> Report:
    """Classify the digits."""
    from ..examples import digits
    from . import demo as digits_demo

    found = find_config(config)
    report = digits_demo.run(found, form=form, progress=progress)
    images, shown = digits.images(), 6
    text = [
        digits_demo.picture(images[:shown]),
        "   ".join(f"{f'predicted {report.predictions[i]}, is {report.labels[i]}':<16}" for i in range(shown)),
        "",
        f"{len(images)} held-out digits, {digits.model_path(form).name} on the simulated accelerator ({config})",
        f"accuracy          {report.accuracy:.2%}  (ONNX Runtime {report.reference_accuracy:.2%})",
        f"bytes compared    {report.bytes:,}, {report.mismatched_bytes:,} differ from ONNX Runtime's",
        f"cycles per image  {report.cycles:,}  (predicted {report.predicted_cycles:,})",
        f"utilisation       {report.utilisation:.1%} of {report.multipliers} multipliers, {report.macs:,} products",
    ]
    values = {
        "accuracy": report.accuracy,
        "reference_accuracy": report.reference_accuracy,
        "images": len(images),
        "bytes": report.bytes,
        "mismatched_bytes": report.mismatched_bytes,
        "cycles": report.cycles,
        "predicted_cycles": report.predicted_cycles,
        "macs": report.macs,
        "utilisation": round(report.utilisation, 4),
    }
    return Report("\n".join(text), values, report.is_right)


def _macs(program: Program) -> int:
    return sum(layer.macs for layer in program.layers)


def _prediction(program: Program, multipliers: int) -> str:
    utilisation = _macs(program) / (program.predicted_cycles * multipliers)
    return (
        f"{program.predicted_cycles:,} cycles predicted for {_inference(program)}, "
        f"{_macs(program):,} multiply-accumulates, {utilisation:.1%} of {multipliers} multipliers busy"
    )


def _inference(program: Program) -> str:
    return f"an inference of {program.batch} samples" if program.batch > 1 else "an inference"


def assign(kind: str, words: Sequence[str], infos: Sequence[TensorInfo]) -> dict[str, str]:
    """Files by the name of their tensor, from ``NAME=FILE`` or, where there is only one tensor, ``FILE``.

    Both names and files may contain ``=``.
    """
    known = [info.name for info in infos]
    files: dict[str, str] = {}
    for word in words:
        # The longest: a name may be the beginning of another one.
        name = max((name for name in known if word.startswith(f"{name}=")), key=len, default=None)
        if name is not None:
            path = word[len(name) + 1 :]
        elif len(known) == 1 and ("=" not in word or "/" in word.partition("=")[0] or Path(word).exists()):
            name, path = known[0], word
        elif "=" in word:
            raise ValueError(
                f"{kind} must be one of {', '.join(known)}, not {word.partition('=')[0]}; "
                f"for a file with = in its name: --{kind} {known[0]}={word}"
            )
        else:
            raise ValueError(f"--{kind} must be NAME=FILE, with NAME one of {', '.join(known)}, not {word}")
        if name in files:
            raise ValueError(f"{kind} {name} must be given once, not twice")
        files[name] = path
    return files


def _load_inputs(files: Mapping[str, str], infos: Sequence[TensorInfo]) -> dict[str, np.ndarray]:
    """The arrays of inputs, from their files."""
    known, feeds = {info.name: info for info in infos}, {}
    for name, path in files.items():
        feeds[name] = load_array(path)
        try:
            check_feed(known[name], feeds[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
    return feeds


def _brief(array: np.ndarray) -> str:
    return "\n  " + np.array2string(array, threshold=40, edgeitems=4, max_line_width=100, prefix="  ")


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned; those that hold numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = [
        all(row[column].replace(",", "").strip("-").isdigit() or row[column] in ("", "-") for row in rows[1:])
        and len(rows) > 1
        for column in range(len(rows[0]))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    )
