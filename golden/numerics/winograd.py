"""Winograd's minimal filtering F(2, 3): two neighbouring outputs of three taps with four products instead of six.

Of four neighbouring inputs d and three taps g::

    y0 = d0 g0 + d1 g1 + d2 g2 = (2 m0 + m1 + m2) / 2
    y1 = d1 g0 + d2 g1 + d3 g2 = (m1 - m2 + 2 m3) / 2

    m0 = (d0 - d2) g0    m1 = (d1 + d2) (g0 + g2 + g1)
    m3 = (d3 - d1) g2    m2 = (d2 - d1) (g0 + g2 - g1)

Both sums are even, so nothing is rounded. That is so for sums over channels and kernel rows as well, and modulo 2**32
as long as twice the output is within 32 bits. Source: Winograd, Arithmetic Complexity of Computations, 1980; Lavin and
Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]

#: The input that is the word of each step of a group, and the tap that is its weight. The products of a group are m0,
#: m3, m1, m2.
INPUTS, TAPS = (0, 2, 1, 3), (0, 2, 1, 1)
#: Steps of a group, which has as many inputs, and outputs of a group.
GROUP, OUTPUTS = len(INPUTS), 2
#: Bits of differences and sums of two inputs of eight bits, and of sums of three taps.
WORD_BITS, WEIGHT_BITS = 9, 10
#: Twice a total has to fit its accumulator of 32 bits.
MOST_TOTAL = (1 << 30) - 1


def transform_inputs(words: npt.NDArray[np.signedinteger[Any]]) -> Int32:
    """Return the factors of a group that are computed from its inputs.

    Parameters
    ----------
    words : int8[..., 4, lanes]
        In the order of :data:`INPUTS`.

    Returns
    -------
    int32[..., 4, lanes]
        Of m0, m3, m1 and m2.
    """
    d0, d2, d1, d3 = np.moveaxis(words.astype(np.int32), -2, 0)
    return np.stack([d0 - d2, d3 - d1, d1 + d2, d2 - d1], axis=-2)


def transform_taps(weights: npt.NDArray[np.signedinteger[Any]]) -> Int32:
    """Return the factors of a group that are computed from its taps.

    Parameters
    ----------
    weights : int8[..., 4, columns, lanes]
        In the order of :data:`TAPS`.

    Returns
    -------
    int32[..., 4, columns, lanes]
        Of m0, m3, m1 and m2.
    """
    g0, g2, plus, minus = np.moveaxis(weights.astype(np.int32), -3, 0)
    return np.stack([g0, g2, g0 + g2 + plus, g0 + g2 - minus], axis=-3)


def outputs(sums: npt.NDArray[np.int64]) -> Int32:
    """Return the two outputs for sums of products.

    Parameters
    ----------
    sums : int64[..., 4, columns]
        Sums of m0, m3, m1 and m2 over groups and lanes.

    Returns
    -------
    int32[..., 2, columns]
        Halves of the accumulators, which are modulo 2**32.
    """
    m0, m3, m1, m2 = np.moveaxis(sums, -2, 0)
    doubled = np.stack([2 * m0 + m1 + m2, m1 - m2 + 2 * m3], axis=-2)
    return doubled.astype(np.int32) >> 1
