"""Masks of attention, brought into the range of the scores that they are added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .alike import range_override, ranges
from .rewriting import Mask
from .rewriting.norms.softmax import LEAST

#: Of a range, as the ends of one are rounded to codes.
_MARGIN = 1 / 64


def bound_masks(
    model: onnx.ModelProto, samples: Mapping[str, np.ndarray], masks: Sequence[Mask]
) -> dict[str, list[dict[str, Any]]]:
    """Raise what masks hold to what takes a score out as well; gives the ranges of the sums, as overrides.

    -1e9 and minus infinity would leave no code for the scores. A softmax in int8 takes a term for 0 that is ln(512)
    below the greatest of its row, so that no sum has to range further down.

    Parameters
    ----------
    model : ModelProto
        Float; its constants are changed.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    masks : sequence of Mask
    """
    if not masks:
        return {}
    known = ranges(model, samples, [name for mask in masks for name in (mask.scores, mask.greatest)])
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for mask in masks:
        lowest, greatest = known[mask.greatest]
        top = max(known[mask.scores][1], greatest)
        margin = (top - lowest - LEAST) * _MARGIN
        least = lowest + LEAST - margin
        tensor = constants[mask.constant]
        values = np.maximum(numpy_helper.to_array(tensor), np.float32(least - top - margin))
        tensor.CopyFrom(numpy_helper.from_array(values, mask.constant))
        found[mask.total] = range_override(least, greatest)
    return found
