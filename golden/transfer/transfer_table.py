"""Transfer tables between codes of any two schemes, and equal tables stored once.

Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
network* (EP 19290051.2): ``TF[i] = Q(OP(Q^-1(i + min_j)))``, and T tables for P places, T <= P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .scheme_names import name_of
from .schemes import Codes, Float32, Scheme

#: Elementwise, on float32 numbers.
Operator = Callable[[Float32], Float32]


def transfer_table(source: Scheme, operator: Operator, target: Scheme) -> Codes:
    """Tabulate an operator for every code of ``source``.

    Parameters
    ----------
    source, target : Scheme
        Of the operator's input and of its result; widths and kinds may differ.
    operator : callable
        Elementwise, from float32[n] to float32[n]: a function of NumPy, or what
        :mod:`lutterfly.host.transfer` makes of ONNX operators.

    Returns
    -------
    target.dtype[source.greatest - source.least + 1]
        ``target.quantise(operator(source.dequantise(i + source.least)))`` at index i. (With the identity for an
        operator this is requantisation.)

    Raises
    ------
    TypeError
        If the operator's result is not float32.
    ValueError
        If its shape is another one, or a result is infinite or not a number: no code stands for it.
    """
    values = source.dequantise(source.codes)
    # NaN and infinity are found below, with the code that leads to them.
    with np.errstate(all="ignore"):
        results = np.asarray(operator(values))
    if results.dtype != np.float32:
        raise TypeError(f"operator must give float32, not {results.dtype}")
    if results.shape != values.shape:
        raise ValueError(f"operator must give a result for each of {values.size} inputs, not the shape {results.shape}")
    bad = np.flatnonzero(~np.isfinite(results))
    if bad.size:
        code, value, result = source.codes[bad[0]], values[bad[0]], results[bad[0]]
        raise ValueError(
            f"operator must give a finite number for every code of {name_of(source)}, not {result} for the code {code} "
            f"({value:g}), the first of {bad.size}: no code stands for it; clip the operator's input or its result, or "
            "choose another source"
        )
    return target.quantise(results)


def stored_once(tables: Sequence[Codes]) -> tuple[list[Codes], list[int]]:
    """Store equal tables once.

    Parameters
    ----------
    tables : sequence of arrays
        One for each of P places.

    Returns
    -------
    stored : list of arrays
        T of them, T <= P, in the order of their first places. Equal ones have equal types, shapes and codes.
    indices : list of int
        For each place that of its table in ``stored``.
    """
    stored: list[Codes] = []
    found: dict[tuple[str, tuple[int, ...], bytes], int] = {}
    indices = []
    for table in tables:
        key = (table.dtype.str, table.shape, table.tobytes())
        if key not in found:
            found[key] = len(stored)
            stored.append(table)
        indices.append(found[key])
    return stored, indices
