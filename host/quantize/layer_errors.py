"""Comparison of float and int8 layer by layer, which shows the layer that loses accuracy."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ..files.terminal import Progress, silent
from ..model.arrays import sample_count
from ..model.model_graph import computed_tensors, expose, model_inputs
from ..model.runtime import plain_session


@dataclass(frozen=True)
class LayerError:
    """The error of a tensor of the quantised network against the float network.

    Attributes
    ----------
    label : str
        Operator and name of the first node that computes it, so that a Relu after a convolution is part of that; or a
        text that it is an input.
    tensor : str
    noise : float
        Signal-to-quantisation-noise ratio in decibels: the power of the float values over that of the difference.
        Infinite if there is no difference.
    inputs_noise : float or None
        The ratio of the worst tensor that the layer reads; None if none of them was compared.
    """

    label: str
    tensor: str
    noise: float
    inputs_noise: float | None

    @property
    def lost(self) -> float:
        """Decibels by which the result is worse than the layer's worst input; 0 if unknown."""
        known = self.inputs_noise is not None and math.isfinite(self.noise)
        return self.inputs_noise - self.noise if known and math.isfinite(self.inputs_noise) else 0.0


def worst(errors: Sequence[LayerError]) -> LayerError:
    """Return the layer that loses most."""
    return max(errors, key=lambda error: error.lost)


def layer_errors(
    prepared: onnx.ModelProto,
    quantised: onnx.ModelProto,
    samples: Mapping[str, np.ndarray],
    progress: Progress = silent,
) -> list[LayerError]:
    """Compare every float tensor that both networks have, in ONNX Runtime without optimisations.

    Parameters
    ----------
    prepared, quantised : ModelProto
        The float model after its rewriting, and the quantised model in QDQ form.
    samples : mapping of str to array
        Samples that have not set the scales; with those the errors would be too small.
    progress : callable

    Returns
    -------
    list of LayerError
        Errors of the inputs, then of the nodes in order of execution.
    """
    pairs = _pairs(prepared, quantised)
    sessions = [
        plain_session(expose(model, names))
        for model, names in ((prepared, pairs), (quantised, [*pairs.values()]))
    ]  # fmt: skip
    powers = {name: np.zeros(2) for name in pairs}
    given = {value.name for value in model_inputs(prepared)}
    wanted = [[name for name in each if name not in given] for each in (pairs, pairs.values())]
    count = sample_count(samples)
    for index in range(count):
        progress("comparing layer by layer", index, count)
        feeds = {name: array[index : index + 1] for name, array in samples.items()}
        ends = [
            feeds | dict(zip(names, session.run(names, feeds), strict=True))
            for session, names in zip(sessions, wanted, strict=True)
        ]
        for name, other in pairs.items():
            values, found = ends[0][name], ends[1][other]
            if values.dtype == np.float32:
                difference = found.astype(np.float64) - values
                powers[name] += np.square(values, dtype=np.float64).sum(), np.square(difference).sum()
    # A tensor of zeros has no ratio.
    return _by_node(prepared, {name: _decibels(*power) for name, power in powers.items() if power[0]})


def _by_node(prepared: onnx.ModelProto, noise: Mapping[str, float]) -> list[LayerError]:
    given = [value.name for value in model_inputs(prepared) if value.name in noise]
    errors = [LayerError(f"input '{name}'", name, noise[name], None) for name in given]
    #: For tensors within a layer, which are not compared: the worst ratio before them, and the layer's name.
    inside: dict[str, tuple[float | None, str]] = {}
    for node in prepared.graph.node:
        before = [noise[name] if name in noise else inside.get(name, (None, ""))[0] for name in node.input]
        worst_input = min((value for value in before if value is not None), default=None)
        begun = [inside[name][1] for name in node.input if name in inside]
        label = next(iter(begun), f"{node.op_type} '{node.name}'")
        for name in node.output:
            if name in noise:
                errors.append(LayerError(label, name, noise[name], worst_input))
            else:
                inside[name] = worst_input, label
    return errors


def _pairs(prepared: onnx.ModelProto, quantised: onnx.ModelProto) -> dict[str, str]:
    """Return tensors of the float network with their names in the other, dequantised where they are quantised."""
    there = {*computed_tensors(quantised), *(value.name for value in model_inputs(quantised))}
    dequantised = {
        node.input[0]: made.output[0]
        for node in quantised.graph.node
        if node.op_type == "QuantizeLinear"
        for made in quantised.graph.node
        if made.op_type == "DequantizeLinear" and made.input[0] == node.output[0]
    }
    names = [*(value.name for value in model_inputs(prepared)), *computed_tensors(prepared)]
    return {name: dequantised.get(name, name) for name in names if name in there}


def _decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise else math.inf


# The comparison as a table and as values.

_WIDTH = 160


def layer_table(errors: Sequence[LayerError]) -> str:
    """Return the table, and the layer that loses most."""
    # Only this function needs the import.
    from rich import box, console, table  # noqa: PLC0415

    drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("layer", overflow="fold")
    for title in ("dB", "lost here"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for error in errors:
        lost = f"{error.lost:.1f}" if error.inputs_noise is not None else ""
        shown = f"{error.noise:.1f}" if math.isfinite(error.noise) else "exact"
        drawn.add_row(error.label.replace("[", r"\["), shown, lost)
    stream = io.StringIO()
    console.Console(file=stream, width=_WIDTH).print(drawn)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    least = worst(errors)
    return "\n".join(
        [
            "signal-to-quantisation-noise ratio of each tensor, against the float network:",
            *filter(None, lines),
            f"{least.label} loses most: {least.lost:.1f} dB",
        ]
    )


def layer_values(errors: Sequence[LayerError]) -> list[dict[str, Any]]:
    """Return the values for scripts, with None where there is no difference."""

    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else round(value, 3)

    return [
        {"layer": error.label, "tensor": error.tensor, "db": number(error.noise), "lost_db": number(error.lost)}
        for error in errors
    ]
