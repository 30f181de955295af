"""What the compiler predicts of a layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """What the compiler predicts of one layer.

    Attributes
    ----------
    name, kind : str
        The ONNX node that the layer comes from, and the kind of the layer.
    commands : tuple of int
        Its commands in the body's compute queue.
    macs : int
        Multiply-accumulates of the layer as the network defines it.
    cycles : int
        Predicted, from the last issue of the layer before to its own last issue.
    array_cycles : int
        Steps that it issues.
    bus_cycles : int
        Beats of its inputs, outputs and constants on the bus, for those that do not stay on the chip.
    bound : str
        ``"bus"`` or ``"array"``, whichever takes longer.
    fold : str
        How its input is folded, for people.
    at_once : int
        Multiply-accumulates that one multiplier's place does in a cycle: 8 for binary values.
    connections, live_connections : int
        For a convolution on the multiplier array: pairs of an input and an output channel, and those with a weight.
    dense_words, model_words, words : int
        Words that all its tiles read for a pixel: if no connection were off, with channels in the model's order, and as
        it is. 1 for other layers.
    dense_cycles : int
        Cycles if no connection were off: the predicted ones, and the steps that are skipped.
    copied_bytes : int
        Bytes that it does nothing but move from one place in the feature memory to another.
    """

    name: str
    kind: str
    commands: tuple[int, ...]
    macs: int
    cycles: int
    array_cycles: int
    bus_cycles: int
    bound: str
    fold: str
    at_once: int = 1
    connections: int = 0
    live_connections: int = 0
    dense_words: int = 1
    model_words: int = 1
    words: int = 1
    dense_cycles: int = 0
    copied_bytes: int = 0

    @property
    def is_sparse(self) -> bool:
        """Whether it skips words, because connections are off."""
        return self.words != self.dense_words

    @property
    def multiplier_cycles(self) -> float:
        """Multiplier cycles that its multiply-accumulates take, without those of skipped words."""
        return self.macs * self.words / self.dense_words / self.at_once
