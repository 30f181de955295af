"""The commands `quantize` and `table`: a float model in int8, and transfer tables as ROMs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.configuration import find_config
from ..files.files import check_writable, load_archive, write_whole
from ..files.terminal import Progress, macs_of, prediction_text
from ..model.arrays import sample_count
from ..model.model import read_model_file
from ..session.loading import load
from .answer import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..quantize.calibration import SampleSplit
    from ..quantize.layer_errors import LayerError
    from ..quantize.rewriting import Rewriting
    from ..quantize.static_quantisation import Quantised

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)


#: The most nodes that are named for each rewriting; JSON has all.
_SHOWN = 3
#: The relative error of an output from which on `quantize` names the layer that loses most.
_WARNED = 0.1


def quantize(
    model: Path,
    calibrate: Path,
    test: Path | None,
    output: Path | None,
    config: str,
    progress: Progress,
    *,
    per_layer: bool = False,
    plot: Path | None = None,
) -> Answer:
    """Quantise a float model, and report whether the accelerator runs the result."""
    from ..model.mac_share import mac_share
    from ..model.runtime import silence_others
    from ..quantize import layer_errors, static_quantisation
    from ..quantize.calibration import split
    from ..quantize.float_model import read_with_samples

    silence_others()
    found = find_config(config)
    file, target = read_model_file(model), output or model.with_name(f"{model.stem}_int8.onnx")
    samples = [(str(path), load_archive(path)) for path in (calibrate, test) if path]
    check_writable(target)
    if plot:
        _check_plot(plot, (model, calibrate, test, target))
    for other, kind in ((model, "the model"), (calibrate, "the samples"), (test, "the samples")):
        if other and target.resolve() == other.resolve():
            raise ValueError(f"output must be another file than {kind}, not {target}")
    given = read_with_samples(file, str(model), *samples)
    parts = split(given.samples[0], given.samples[1] if test else None, str(calibrate))
    quantised = static_quantisation.quantize_checked(
        given.model, parts.calibrating, name=str(model), overrides={}, progress=progress
    )
    opened = quantised.model
    write_whole(target, quantised.file.data)
    errors = static_quantisation.relative_errors(given.file, opened, parts.judging, progress)
    layers, warnings = [], [*parts.warnings]
    if per_layer or plot or max(errors.values(), default=0) >= _WARNED:
        layers = layer_errors.layer_errors(quantised.prepared, opened.proto, parts.judging, progress)
        warnings += _inaccurate(errors, layers)
    text, values = _quantised(target, quantised, errors, parts, warnings)
    if given.was_half:
        text = ["float16 and bfloat16 were made float32 first: inputs and outputs of the result are float32", *text]
    values["was_half"] = given.was_half
    if per_layer or plot:
        more, shown = _layer_by_layer(model.name, layers, parts.judges, plot)
        text, values = text + more, values | shown
    progress("compiling")
    try:
        loaded = load(opened, found, name=str(target))
    except ValueError as error:
        text.append(f"the accelerator does not run it: {error}")
        return Answer("\n".join(text), values | {"error": str(error)}, is_right=False)
    program, share = loaded.program, mac_share(loaded.program, loaded.parts)
    text += [prediction_text(program, found.multipliers), *share.lines()]
    values |= {"predicted_cycles": program.predicted_cycles, "macs": macs_of(program), **share.values()}
    values["warnings"] = [*warnings, *share.warnings]
    return Answer("\n".join(text), values)


def _quantised(
    target: Path, quantised: Quantised, errors: Mapping[str, float], parts: SampleSplit, warnings: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Return the answer: rewritings, quantisation, and errors."""
    count, judges = sample_count(parts.calibrating), sample_count(parts.judging)
    values: dict[str, Any] = {"samples": count, "file_bytes": len(quantised.file.data), "relative_errors": errors}
    values |= {"judging_samples": judges, "judges": parts.judges, "warnings": warnings}
    values["rewritten"] = [
        {"node": one.label, "as": one.rewriting.title, "change": one.rewriting.change} for one in quantised.rewritten
    ]
    values["rewritten_difference"] = quantised.difference
    text = [
        *_rewritten_text(quantised),
        f"{target}: {len(quantised.file.data):,} bytes, calibrated with {count} samples",
        *(
            f"output {name}: {error:.2%} from the float model's, on {parts.judges} (root mean square of {judges})"
            for name, error in errors.items()
        ),
        *(f"warning: {warning}" for warning in warnings),
    ]
    return text, values


def _inaccurate(errors: Mapping[str, float], layers: Sequence[LayerError]) -> list[str]:
    """Return a warning of outputs that are far from the float model's, with the input or layer that causes it."""
    from ..quantize.layer_errors import worst

    far = [f"output {name} is {error:.1%} from the float model's" for name, error in errors.items() if error >= _WARNED]
    if not far:
        return []
    # The error of an input is not caused by a layer.
    lost = [one for one in layers if one.inputs_noise is None and one.noise <= -20 * math.log10(_WARNED)]
    if lost:
        given = min(lost, key=lambda one: one.noise)
        cause = (
            f"{given.label} itself is {10 ** (-given.noise / 20):.1%} from what it was, before any layer; "
            "calibrate with samples that reach as far as those that measure the error, and without outliers"
        )
    else:
        least = worst(layers)
        cause = (
            f"{least.label} loses most, {least.lost:.1f} dB (--per-layer shows all layers); calibrate with more "
            "typical samples, or train the network so that what this layer reads and computes has channels of like "
            "ranges"
        )
    return [f"{', '.join(far)}: {cause}"]


def _layer_by_layer(
    name: str, layers: Sequence[LayerError], judges: str, plot: Path | None
) -> tuple[list[str], dict[str, Any]]:
    """Compare float and int8 layer by layer, as a table and, if requested, as a page."""
    from ..quantize import layer_errors

    text, values = [layer_errors.layer_table(layers)], {"layers": layer_errors.layer_values(layers)}
    if plot:
        from ..report.layer_errors import plot as draw

        write_whole(plot, draw(name, layers, judges).encode())
        return [*text, f"plot: {plot}"], values | {"plot": str(plot)}
    return text, values


def _check_plot(plot: Path, others: tuple[Path | None, ...]) -> None:
    """Check, before anything runs, that a plot can be written."""
    from .. import report

    report.check_ending(plot, "plot")
    report.check_available("plot")
    check_writable(plot)
    if any(other and other.resolve() == plot.resolve() for other in others):
        raise ValueError(f"plot must be another file than what the command reads and writes, not {plot}")


def _rewritten_text(quantised: Quantised) -> list[str]:
    """Return a text on the rewritings, each with its nodes and its effect."""
    nodes: dict[Rewriting, list[str]] = {}
    for one in quantised.rewritten:
        nodes.setdefault(one.rewriting, []).append(one.label)
    if not nodes:
        return []
    lines = []
    for rewriting, labels in nodes.items():
        shown = ", ".join(labels[:_SHOWN]) + (f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else "")
        lines += [f"rewritten: {rewriting.title}: {shown}", f"    {rewriting.change}"]
    return [*lines, f"in float, the rewritten model is {quantised.difference:.1e} from the given one"]


# The command `table`: a transfer table, and its ROM as Verilog.

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)


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
    from ...golden.transfer.schemes import parse
    from .. import report as reports
    from ..transfer import operators as chains
    from ..transfer import table as tables

    if bool(operators) == (model is not None):
        raise ValueError(
            "operator or model must be given, and not both: --operator Tanh, or --model FILE with a chain of pointwise "
            "operators; --operator Identity requantises"
        )
    schemes = parse(source), parse(target)
    there_are = tables.BlockRams.parse(limit) if limit else None
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
    found = tables.tabulate_chain(name, chains.PointwiseFunction(chain, name), *schemes)
    if there_are:
        there_are.check(found.rom)
    text, values = [tables.summary(found)], found.values()
    if output:
        progress("generating Verilog")
        module = tables.module_name(output)
        data = tables.table_verilog(found, module).encode()
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
        text.append(tables.shown_codes(found))
    return Answer("\n".join(text), values)
