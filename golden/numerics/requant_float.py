"""Requantisation in float32, as ONNX Runtime does it: the bytes of ``requant.py``, several times as fast.

The accelerator has no float arithmetic, so ``requant.py`` is what it is tested against. This is for graphs that are
evaluated without it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def requantise_float(
    total: npt.NDArray[np.int32 | np.int64],
    multiplier: npt.NDArray[np.float32],
    zero_point: int,
    low: int = -128,
    high: int = 127,
) -> npt.NDArray[np.int8]:
    """Scale, round, add the zero point and clamp.

    Parameters
    ----------
    total : int32[..., channels] or int64[..., channels]
        Sums, their bias added.
    multiplier : float32[channels]
        Scales, finite and not negative.
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
    if total.dtype not in (np.int32, np.int64):
        raise TypeError(f"total must be int32 or int64, not {total.dtype}")
    if multiplier.dtype != np.float32:
        raise TypeError(f"multiplier must be float32, not {multiplier.dtype}")
    # A product may be infinite, which is clamped as well, or vanish.
    with np.errstate(over="ignore", under="ignore"):
        scaled = total.astype(np.float32)
        scaled *= multiplier
    np.rint(scaled, out=scaled)
    scaled += np.float32(zero_point)
    return np.clip(scaled, low, high, out=scaled).astype(np.int8)
