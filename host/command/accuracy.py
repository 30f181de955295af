"""The commands `evaluate` and `verify`, which compare the accelerator with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.terminal import Progress, inference_text, macs_of, table_text
from ..model.arrays import TensorInfo, describe_model, load_labels, load_samples
from ..model.model import read_model_file
from ..session.session import InferenceSession
from .answer import Answer
from .target import Target

if TYPE_CHECKING:
    import onnxruntime

    from ..model.mac_share import MacShare
    from ..session.accuracy import Accuracy, Score
    from ..session.compare import Verification

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)


def evaluate(
    model: Path,
    data: Path,
    labels: Path,
    float_path: Path | None,
    limit: int | None,
    backend: str,
    target: Target,
    progress: Progress,
) -> Answer:
    """Measure accuracy on files."""
    from ..session.accuracy import class_count, measure_accuracy

    progress("compiling")
    session = InferenceSession(
        model,
        target.config,
        target.transport,
        progress=progress,
        batch=target.batch,
        spread_by=target.spread_by,
        backend=backend,
    )
    ends = session.get_inputs(), session.get_outputs()
    classes = class_count(ends[1], str(model))
    float_model = _open_float(float_path, ends, classes) if float_path else None
    feeds = load_samples(data, ends[0])
    known = load_labels(labels, len(next(iter(feeds.values()))), classes)
    feeds = {name: array[:limit] for name, array in feeds.items()}
    found = measure_accuracy(session, feeds, known[:limit], float_model=float_model, progress=progress)
    return _answer(found, session)


def _open_float(
    path: Path, ends: tuple[list[TensorInfo], list[TensorInfo]], classes: int
) -> onnxruntime.InferenceSession:
    """Open the float model in ONNX Runtime, if it has the inputs and the number of classes of the int8 model."""
    from ..model.runtime import RUNTIME_ERRORS, open_with, reason_of, session_options
    from ..model.whole_samples import with_axis
    from ..session.accuracy import class_count

    try:
        file = with_axis(read_model_file(path))
        opened, (inputs, outputs) = open_with(file.data, session_options(qdq=False)), describe_model(file)
    except RUNTIME_ERRORS as error:
        raise ValueError(
            f"{path}: must be an ONNX file that ONNX Runtime runs: {reason_of(error)}; export the network to ONNX"
        ) from error
    wanted, given = (
        [f"{info.name} {info.dtype}{list(info.sample_shape)}" for info in each] for each in (ends[0], inputs)
    )
    if sorted(wanted) != sorted(given):
        raise ValueError(
            f"{path}: must have the inputs of the int8 model, {', '.join(wanted)}, not {', '.join(given)}; "
            "name the float model that it was made from"
        )
    if (count := class_count(outputs, str(path))) != classes:
        raise ValueError(
            f"{path}: must have the {classes} classes of the int8 model, not {count}; "
            "name the float model that it was made from"
        )
    return opened


def _answer(found: Accuracy, session: InferenceSession) -> Answer:
    scores = {
        "float model in ONNX Runtime": ("float", found.float_model),
        "int8 model in ONNX Runtime": ("int8", found.int8_model),
        session.backend.title: ("accelerator", found.accelerator),
    }
    rows = [("", "accuracy", "right", "samples", "samples/s")]
    values = {}
    for title, (name, score) in scores.items():
        if score is not None:
            rows.append((title, f"{score.accuracy:.2%}", f"{score.right:,}", f"{score.samples:,}", _speed(score)))
        values[name] = score and {
            "accuracy": score.accuracy,
            "right": score.right,
            "samples_per_second": round(score.samples_per_second, 3),
        }
    samples = found.accelerator.samples
    if found.reference:
        verdict = f"no comparison of bytes with ONNX Runtime: {found.reference}"
    else:
        verdict = f"{found.differing:,} of {samples:,} samples differ from the int8 model in ONNX Runtime in some byte"
    values |= {"samples": samples, "backend": session.backend.name, "differing_samples": found.differing}
    values["reference"] = found.reference or "onnxruntime"
    return Answer("\n".join([table_text(rows), "", verdict]), values, found.is_right)


def _speed(score: Score) -> str:
    """Format a speed with three digits, or all before the point."""
    return f"{score.samples_per_second:,.0f}" if score.samples_per_second >= 100 else f"{score.samples_per_second:.3g}"


# The command `verify`.

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)


def verify(model: Path, samples: int, seed: int, target: Target, progress: Progress) -> Answer:
    """Compare ONNX Runtime, the golden models and the accelerator."""
    from ..model.mac_share import mac_share
    from ..session.verify import verify as verify_model

    progress("compiling")
    result = verify_model(
        model,
        target.config,
        samples,
        seed,
        batch=target.batch,
        spread_by=target.spread_by,
        transport=target.transport,
        progress=progress,
    )
    share = mac_share(result.program, result.loaded.parts)
    values = _values(result) | share.values()
    values["utilisation"] = round(result.program.utilisation(result.cycles, target.config.multipliers), 4)
    return Answer("\n".join(_text(result, share)), values, result.bytes_right, result.cycles_right)


def _text(result: Verification, share: MacShare) -> list[str]:
    """Return the comparisons, tensor by tensor and layer by layer, and the verdict, as text."""
    tensors = [("tensor", "bytes", "golden", "machine", "RTL")]
    tensors += [
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
    against = "golden functions" if result.reference else "ONNX Runtime"
    text = [
        f"bytes that differ from those of {against}, in {result.samples} samples ('-': fused, not visible):",
        table_text(tensors),
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
            "compared with the golden functions, as ONNX Runtime does not have them, or rounds float operators on the "
            f"host otherwise where it shows them: {', '.join(result.unseen)}"
        )
    return [*text, f"verdict: {result.verdict}"]


def _values(result: Verification) -> dict[str, Any]:
    """Return the comparisons and the verdict as values for JSON."""
    return {
        "bytes_right": result.bytes_right,
        "cycles_right": result.cycles_right,
        "verdict": result.verdict,
        "bytes": result.bytes,
        "mismatched_bytes": result.mismatched_bytes,
        "cycles": result.cycles,
        "predicted_cycles": result.program.predicted_cycles,
        "macs": macs_of(result.program),
        "samples": result.samples,
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
