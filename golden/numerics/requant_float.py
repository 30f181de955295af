"""Requantisation in float32, as ONNX Runtime does it: the bytes of ``requant.py``, several times as fast.

The accelerator has no float arithmetic, so ``requant.py`` is what it is tested against. This is for graphs that are
evaluated without it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .convolution import Totals


def requantise_float(
    total: Totals,
    multiplier: npt.NDArray[np.float32],
    zero_point: int,
    low: int = -128,
    high: int = 127,
) -> npt.NDArray[np.int8]:
    """Scale, round, add the zero point and clamp.

    Parameters
    ----------
    total : int32, int64, float32 or float64[..., channels]
        Sums, their bias added: integers, whatever the type.
    multiplier : float32[channels]
        Scales, finite and not negative; or what else fits the shape of ``total``.
    zero_point, low, high : int
        int8 codes, ``low <= high``.

    Returns
    -------
    int8[..., channels]
        ``clip(rint(f32(total) * multiplier) + zero_point, low, high)`` with a float32 product and halves to even.

    Raises
    ------
    TypeError
        If an array has another type.
    """
    if total.dtype not in (np.int32, np.int64, np.float32, np.float64):
        raise TypeError(f"total must be int32, int64, float32 or float64, not {total.dtype}")
    if multiplier.dtype != np.float32:
        raise TypeError(f"multiplier must be float32, not {multiplier.dtype}")
    # A product may be infinite, which is clamped as well, or vanish.
    with np.errstate(over="ignore", under="ignore"):
        scaled = total.astype(np.float32)
        scaled *= multiplier
    np.rint(scaled, out=scaled)
    scaled += np.float32(zero_point)
    return np.clip(scaled, low, high, out=scaled).astype(np.int8)
