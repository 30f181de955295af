"""What the frontend raises."""

from __future__ import annotations

import re

FOLD = (
    "fold it into the weights of a layer before quantising, as `lutterfly quantize` does after convolutions and Gemm "
    "(Brevitas: brevitas.nn.utils.merge_bn)"
)
FOLD_AFTER = FOLD.replace("merge_bn)", "merge_bn, or export_qonnx, which needs no folding)")
NORMALISE = (
    "train the network with batch normalisation, whose mean and deviation are constants that are folded into weights, "
    "or end the quantised network before it"
)
SPELL = (
    "quantise the float model with `lutterfly quantize`, which spells it as a convolution and DepthToSpace, or use "
    "scales that are powers of two"
)
REWRITE = (
    "quantise the float model with `lutterfly quantize`, which spells it with operators that run, or end the quantised "
    "network before it"
)
ATTEND = (
    "do without softcap, earlier keys and computed masks; quantise the float model with `lutterfly quantize`, which "
    "spells all other attention as products and a softmax, or end the quantised network before it"
)
ONE_TYPE = "quantise all activations to one type, as `lutterfly quantize` does with the float model"
REPLACE = "replace it, or end the quantised network before it"


#: Remedies that name `lutterfly quantize`: they end a message.
_QUANTISING = re.compile(r"[^;]*\blutterfly quantize\b.*", re.DOTALL)


def without_quantising(text: str) -> str:
    """A message without the advice to quantise with `lutterfly quantize`, for a model that this has made."""
    return _QUANTISING.sub(f" {REPLACE}", text)


class ModelError(ValueError):
    """The model cannot run on the accelerator; the message names file, node or tensor, and the remedy."""


class UnsupportedError(Exception):
    """The accelerator cannot run a fragment; at an end of the network the host does.

    Attributes
    ----------
    reason, remedy : str
        What is wrong, and what the user can do.
    """

    def __init__(self, reason: str, remedy: str = REPLACE):
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class OperandError(UnsupportedError):
    """The weights or the bias of a product are no integers.

    Parameters
    ----------
    operand : str
        Which of them, for messages.
    name : str
        Of the tensor.
    problem : str
        What it is, as a sentence goes on behind the name.
    remedy : str
    """

    def __init__(self, operand: str, name: str, problem: str, remedy: str):
        super().__init__(f"the {operand} {name!r} {problem}", remedy)
        self.operand = operand
        self.problem = problem

    def of(self, name: str, remedy: str) -> OperandError:
        """The same of a tensor that the user calls otherwise than ONNX Runtime does."""
        return OperandError(self.operand, name, self.problem, remedy)
