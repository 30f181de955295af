"""What `quantize` does: a float model quantised, and whether the accelerator runs the result."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.configuration import find_config
from ..files.numpy_files import load_archive
from ..files.phrases import macs_of, prediction_text
from ..files.progress import Progress
from ..files.writing import check_writable, write_whole
from ..model.arrays import sample_count
from ..model.model import Model
from ..model.model_file import read_model_file
from ..session.loading import load
from .answer import Answer

if TYPE_CHECKING:
    from ..quantize.rewriting import Rewriting
    from ..quantize.static_quantisation import Quantised

#: Nodes that are named for each rewriting; JSON has all.
_SHOWN = 3


def quantize(
    model: Path, calibrate: Path, test: Path | None, output: Path | None, config: str, progress: Progress
) -> Answer:
    """Quantise a float model, and say whether the accelerator runs the result."""
    from ..model.mac_share import mac_share
    from ..model.runtime import silence_others
    from ..quantize import float_model, static_quantisation
    from ..quantize.calibration import split

    silence_others()
    found = find_config(config)
    file, target = read_model_file(model), output or model.with_name(f"{model.stem}_int8.onnx")
    samples, others = load_archive(calibrate), load_archive(test) if test else None
    check_writable(target)
    for other, kind in ((model, "the model"), (calibrate, "the samples"), (test, "the samples")):
        if other and target.resolve() == other.resolve():
            raise ValueError(f"output must be another file than {kind}, not {target}")
    prepared = float_model.read_float_model(file, str(model))
    float_model.check_samples(file, samples, str(calibrate))
    if others is not None:
        float_model.check_samples(file, others, str(test))
    parts = split(samples, others, str(calibrate))
    quantised = static_quantisation.quantize_checked(
        prepared, parts.calibrating, name=str(model), overrides={}, progress=progress
    )
    write_whole(target, quantised.data)
    opened = Model(quantised.data)
    errors = static_quantisation.relative_errors(file, opened, parts.judging, progress)
    count, judges = sample_count(parts.calibrating), sample_count(parts.judging)
    values: dict[str, Any] = {"samples": count, "file_bytes": len(quantised.data), "relative_errors": errors}
    values |= {"judging_samples": judges, "judges": parts.judges, "warnings": parts.warnings}
    values["rewritten"] = [
        {"node": one.label, "as": one.rewriting.title, "change": one.rewriting.change} for one in quantised.rewritten
    ]
    values["rewritten_difference"] = quantised.difference
    text = [
        *_rewritten_text(quantised),
        f"{target}: {len(quantised.data):,} bytes, calibrated with {count} samples",
        *(
            f"output {name}: {error:.2%} from the float model's, on {parts.judges} (root mean square of {judges})"
            for name, error in errors.items()
        ),
        *(f"warning: {warning}" for warning in parts.warnings),
    ]
    progress("compiling")
    try:
        loaded = load(opened, found, name=str(target))
    except ValueError as error:
        text.append(f"the accelerator does not run it: {error}")
        return Answer("\n".join(text), values | {"error": str(error)}, is_right=False)
    program, share = loaded.program, mac_share(loaded.program, loaded.parts)
    text += [prediction_text(program, found.multipliers), *share.lines()]
    values |= {"predicted_cycles": program.predicted_cycles, "macs": macs_of(program), **share.values()}
    values["warnings"] = [*parts.warnings, *share.warnings]
    return Answer("\n".join(text), values)


def _rewritten_text(quantised: Quantised) -> list[str]:
    """What was rewritten, each rewriting once with the nodes and with what it changes."""
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
