"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...golden.program.program import Program
from .loaded import Loaded

#: A prediction is right within this part of the measured cycles, or this many cycles, whichever is more.
TOLERANCE, TOLERANCE_CYCLES = 0.02, 16


@dataclass
class TensorComparison:
    """One quantised tensor, over all samples.

    Attributes
    ----------
    name : str
        Of the ONNX tensor.
    bytes : int
        Bytes that were compared, for each of the three.
    golden, machine, rtl : int or None
        Bytes that differ from ONNX Runtime's (or from the golden functions', where ONNX Runtime is no reference); None
        where the tensor cannot be seen: fused tensors are seen in the golden functions alone.
    """

    name: str
    bytes: int = 0
    golden: int | None = None
    machine: int | None = None
    rtl: int | None = None

    @property
    def mismatched(self) -> int:
        """All bytes that differ."""
        return sum(count or 0 for count in (self.golden, self.machine, self.rtl))


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """Predicted and measured cycles of one layer, from the last issue of the one before to its own.

    ``whole`` are the measured cycles that the tolerance is a part of: the layer's, or those of the inference where
    cores wait for one another, now in this layer and now in that.
    """

    name: str
    predicted: int
    measured: int
    whole: int

    @property
    def is_right(self) -> bool:
        """Whether the prediction is within the tolerance."""
        return abs(self.predicted - self.measured) <= max(TOLERANCE_CYCLES, TOLERANCE * self.whole)


@dataclass
class Verification:
    """What a verification found.

    Attributes
    ----------
    loaded : Loaded
        The program with the models in it.
    samples : int
    tensors : list of TensorComparison
        In order of execution, the model's outputs last.
    layers : list of LayerCycles
        Empty where the memory is not the ideal one.
    cycles : int
        Of one inference, from start to done.
    reference : str
        Why ONNX Runtime on this processor is no reference; empty if it is one.
    unseen : list of str
        Tensors that are compared with the golden functions although ONNX Runtime is a reference, because it does not
        show them for certain, see :class:`.reference.Reference`; the outputs never are.
    random : list of str
        Tensors that random numbers decide, in ONNX Runtime as well: they are compared with the golden functions, and
        outputs not at all.
    """

    loaded: Loaded
    samples: int
    tensors: list[TensorComparison] = field(default_factory=list)
    layers: list[LayerCycles] = field(default_factory=list)
    cycles: int = 0
    reference: str = ""
    unseen: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    @property
    def program(self) -> Program:
        """The program."""
        return self.loaded.program

    @property
    def bytes(self) -> int:
        """Comparisons of bytes in all."""
        return sum(
            tensor.bytes * sum(count is not None for count in (tensor.golden, tensor.machine, tensor.rtl))
            for tensor in self.tensors
        )

    @property
    def mismatched_bytes(self) -> int:
        """Comparisons that failed."""
        return sum(tensor.mismatched for tensor in self.tensors)

    @property
    def bytes_right(self) -> bool:
        """Whether all bytes are equal."""
        return not self.mismatched_bytes

    @property
    def cycles_right(self) -> bool:
        """Whether all predictions of cycles are within the tolerance."""
        return all(layer.is_right for layer in self.layers)

    @property
    def is_right(self) -> bool:
        """Whether bytes and cycles are."""
        return self.bytes_right and self.cycles_right

    @property
    def verdict(self) -> str:
        """Which of the two are right, and where they are not."""
        wrong = [tensor.name for tensor in self.tensors if tensor.mismatched]
        off = [layer.name for layer in self.layers if not layer.is_right]
        found = [f"bytes differ in {', '.join(wrong)}" if wrong else "all bytes are right"]
        if off:
            limit = f"{TOLERANCE:.0%} and {TOLERANCE_CYCLES} cycles"
            found.append(f"the predicted cycles are off by more than {limit} in {', '.join(off)}")
        elif self.layers:
            found.append("the cycles are as predicted")
        if self.random:
            found.append(f"ONNX Runtime's are no reference where random numbers decide: {', '.join(self.random)}")
        return "; ".join(found)
