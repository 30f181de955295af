"""Transfer tables: run a chain of pointwise operators in ONNX Runtime on every code.

Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
network* (EP 19290051.2): between two quantised tensors any chain of pointwise operators is a table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

from ...golden.transfer.tables import apply_table
from ..model.runtime import plain_session
from . import Int8
from .geometry import from_codes, to_codes

CODES = np.arange(-128, 128, dtype=np.int8)

# ONNX Runtime's kernels work on vectors of up to 16 floats, unrolled up to fourfold, and treat the rest of a tensor
# apart. Lengths around these sizes put every code in the body and in the rest.
_REST_LENGTHS = (1, 3, 7, 15, 31, 63)


def code_offset(dtype: np.dtype) -> int:
    """Return the difference between int8 or uint8 elements and their int8 codes."""
    return 128 if dtype == np.uint8 else 0


def open_part(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Open a part of the executed graph without optimisations and without a thread pool."""
    return plain_session(model, threads=1)


def tabulate(model: onnx.ModelProto, ahead: Mapping[str, Int8] | None = None) -> Int8:
    """Tabulate a model that maps codes to codes.

    Parameters
    ----------
    model : ModelProto
        Inputs of shape [n] with any n, one output, all int8 or uint8.
    ahead : mapping of str to int8[256]
        Tables between a code and each input; by default the code is the one input itself.

    Returns
    -------
    int8[256]
        The code of the result, indexed by the code of the input plus 128.

    Raises
    ------
    ValueError
        If ONNX Runtime's result for a code depends on its place in a tensor, so that no table gives its bytes.
    """
    session = open_part(model)
    types = {
        value.name: np.dtype(np.uint8 if value.type == "tensor(uint8)" else np.int8) for value in session.get_inputs()
    }

    def run(codes: Int8) -> Int8:
        feeds = {name: codes if ahead is None else apply_table(codes, ahead[name]) for name in types}
        feeds = {name: from_codes(codes, types[name]) for name, codes in feeds.items()}
        return to_codes(session.run(None, feeds)[0].reshape(-1))

    table = run(CODES)
    for length in _REST_LENGTHS:
        for start in range(0, 256, length):
            # The lengths have bodies of one and of two hundred and fifty-six elements, so that the last `length` codes
            # are in the rest of some kernel.
            rest = CODES.take(range(start, start + length), mode="wrap")
            for codes in (rest, np.concatenate([CODES, rest])):
                _check(table, codes, run(codes))
    return table


def _check(table: Int8, codes: Int8, results: Int8) -> None:
    wrong = np.flatnonzero(table[codes.astype(np.int64) + 128] != results)
    if wrong.size:
        code = codes[wrong[0]]
        raise ValueError(
            f"ONNX Runtime gives {table[int(code) + 128]} or {results[wrong[0]]} for code {code}, "
            "depending on its position in the tensor"
        )
