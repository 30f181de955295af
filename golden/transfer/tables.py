"""Transfer tables: any function of a code as 256 codes.

Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
network* (EP 19290051.2): ``TF[i] = Q(OP(Q^-1(i + min)))``.
"""

from __future__ import annotations

import numpy as np

from ..isa import TABLE_BYTES
from ..numerics.convolution import Int8


def apply_table(codes: Int8, table: Int8) -> Int8:
    """Look every code up.

    Parameters
    ----------
    codes : int8[...]
    table : int8[256]
        Indexed by the code plus 128.

    Returns
    -------
    int8[...]
        ``table[codes + 128]``.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If the table does not have 256 entries.
    """
    codes, table = np.asarray(codes), np.asarray(table)
    for name, array in (("codes", codes), ("table", table)):
        if array.dtype != np.int8:
            raise TypeError(f"{name} must be int8, not {array.dtype}")
    if table.shape != (TABLE_BYTES,):
        raise ValueError(f"table must have the shape ({TABLE_BYTES},), not {table.shape}")
    return table[codes.astype(np.intp) + 128]
