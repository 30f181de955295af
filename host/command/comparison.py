"""What `verify` does: everything compared with everything."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.phrases import inference_text, macs_of, table_text
from ..files.progress import Progress
from .answer import Answer
from .target import Target

if TYPE_CHECKING:
    from ..model.mac_share import MacShare
    from ..session.verification import Verification


def verify(model: Path, samples: int, seed: int, target: Target, progress: Progress) -> Answer:
    """Compare everything with everything."""
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
    """What was compared, tensor by tensor and layer by layer, and the verdict."""
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
    """The same for scripts."""
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
