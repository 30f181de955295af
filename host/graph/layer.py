"""The interface of layers: the contract between kinds of layers and the passes that transform them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ...golden.elements import BINARY_BITS
from ...golden.numerics.binary import signs
from ..model.model import Model
from .geometry import (
    ONE_PIXEL,
    ChannelRule,
    CodeEpilogue,
    Int8,
    Order,
    Selection,
    Shape,
    Tensor,
    ViewPlace,
    Views,
    Window,
    looked_up,
)


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """One operation on tensors of the graph.

    A kind of layer has to define its name and its function (:meth:`kind`, :meth:`evaluate`). All else has a default
    here, that of a layer with no property that concerns a pass.

    Attributes
    ----------
    name : str
        Name of its ONNX node, for messages.
    inputs : tuple of str
        Its inputs; a tensor may be there twice.
    output : str
    window : Window
        The window over its inputs, the first one at least (see :meth:`window_of`).
    epilogue : CodeEpilogue or None
        The epilogue of its codes; None for a layer that cannot have one.
    is_table : bool
        Whether it is only a table, or the signs, of a tensor: each code of the output depends on one code.
    is_copy : bool
        Whether it copies elements (see :meth:`selections`), so that it is not needed where they are in place already.
    adds_border : bool
        Whether it only pads a map with the zero point, by ``window.pads``.
    weight_place : int or None
        The index of the input with its weights, which is the last one.
    keeps_signs : bool
        Whether it selects among elements, so that +1 and -1 stay such, and a binary tensor gives a binary tensor.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    window: Window = field(default=ONE_PIXEL, kw_only=True)
    epilogue: CodeEpilogue | None = field(default=None, init=False)

    is_table: ClassVar[bool] = False
    is_copy: ClassVar[bool] = False
    adds_border: ClassVar[bool] = False
    weight_place: ClassVar[int | None] = None
    keeps_signs: ClassVar[bool] = False

    @property
    def input(self) -> str:
        """The first input: the only one of most layers."""
        return self.inputs[0]

    @property
    def fetched(self) -> tuple[str, ...]:
        """The inputs that its windows read."""
        return self.inputs if self.weight_place is None else self.inputs[: self.weight_place]

    def window_of(self, place: int) -> Window:
        """Return the window over one of its inputs."""
        return self.window

    # Name and function.

    @abstractmethod
    def kind(self, source: Shape, target: Shape) -> str:
        """Return its name, in a word or two, for an input and an output of these shapes."""

    def details(self, source: Shape, target: Shape) -> str:
        """Return the text after the kind in :meth:`describe`."""
        return ""

    def describe(self, source: Tensor, target: Tensor) -> str:
        """Describe the kind, its geometry and the fused operations, between these tensors."""
        shapes = source.shape, target.shape
        return f"{self.kind(*shapes)}{self.details(*shapes)}"

    def macs(self, target: Shape) -> int:
        """Return the multiply-accumulates for an output of this shape, as the network defines them."""
        return 0

    @abstractmethod
    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Compute the layer with the golden functions.

        Parameters
        ----------
        values : mapping of str to int8[..., height, width, channels]
            Codes of its inputs, of one sample or of several.
        tensors : mapping of str to Tensor
            The tensors of the graph.

        Returns
        -------
        dict of str to int8[..., height, width, channels]
            Its output, and the tensor in front of a fused table.
        """

    def normalised(self, zero_point: int) -> Layer:
        """Return a layer that computes the same from the codes themselves instead of codes less a zero point."""
        return self

    # Fusion.

    @property
    def table(self) -> Int8 | None:
        """int8[256], the table at the end of the layer; None where there is none."""
        return None if self.epilogue is None else self.epilogue.table

    @property
    def inner(self) -> str:
        """The tensor before its table and signs: the output where there is neither."""
        return (self.epilogue and self.epilogue.inner) or self.output

    @property
    def input_tables(self) -> tuple[Int8 | None, ...]:
        """int8[256] for each input, the table of its codes before the layer's function; None where there is none."""
        return (None,) * len(self.inputs)

    def with_input_tables(self, inputs: Sequence[str], tables: Sequence[Int8 | None]) -> Layer:
        """Return the layer with other inputs and their tables, for a kind that has such tables."""
        raise TypeError(f"{self.name}: layer must have tables for its inputs, not be a {type(self).__name__}")

    @property
    def takes_signs(self) -> bool:
        """Whether it can output the signs of its codes, so that a sign layer after it can be fused."""
        return False

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """Return the layer with a fused table, for a layer that has an epilogue.

        Parameters
        ----------
        output : str
            The tensor after the table.
        table : int8[256] or None
            None where the output is binary and holds the signs of the former output.
        """
        raise TypeError(f"{self.name}: layer must have an epilogue to take a table, not be a {type(self).__name__}")

    # Padding.

    def counts_border(self, code: int) -> bool:
        """Return whether the layer's padding equals a border of this code, the input's zero point.

        Such a layer can take over the padding of a layer before it, by wider ``window.pads``.
        """
        return False

    @property
    def binary_border(self) -> int | None:
        """The padding of a binary input: +1, -1, or 0 for elements that add nothing; None for no padding of a
        binary tensor."""
        return None

    def separated(self, between: str) -> tuple[Layer, Layer] | None:
        """Split into two layers: along the columns into a tensor ``between``, then along the rows.

        None for a kind that is not separable.
        """
        return None

    # Parts of the output, and the parts of inputs from which they are computed.

    def of_rows(self, rows: range, height: int) -> Self | None:
        """Return the layer for some rows of the output, whose inputs are the rows that their windows reach.

        The whole inputs have ``height`` rows; padding is as before. None for a layer that cannot be split so.
        """
        return dataclasses.replace(self, window=self.window.of_rows(rows, height))

    def of_channels(self, channels: range, source: Tensor) -> tuple[Layer, range] | None:
        """Return the layer for some channels of the output, and the channels that it needs of each input.

        Parameters
        ----------
        channels : range
        source : Tensor

        Returns
        -------
        layer : Layer
            The layer, for inputs that have no other channels.
        needed : range
        The channels that it needs; None for a layer that cannot be split so.
        """
        return None

    def of_outputs(self, outputs: range, inner: str, output: str) -> Layer | None:
        """Return the layer for some equally spaced channels of the output, from all of its inputs.

        Its output is ``output`` and, where it has a table, ``inner`` before it. None for a layer that cannot be split
        so.
        """
        return None

    # Order of channels.

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Return the channels that may be reordered, between these tensors."""
        return ChannelRule.FIXED

    @property
    def connections(self) -> npt.NDArray[np.bool_]:
        """The input channels that each output channel uses, bool[outputs, inputs], for a layer with free
        channels."""
        raise TypeError(f"{self.name}: layer must have free channels to have connections, not be {type(self).__name__}")

    def reordered(self, outputs: Order, inputs: Order) -> Layer:
        """Return the layer for channels in other orders, as far as its rule allows.

        Parameters
        ----------
        outputs, inputs : int64[channels]
            The channel at each place.
        """
        return self

    def ungrouped(self, *, fill: bool = False) -> Layer:
        """Return the layer without groups, with zero weights for unused inputs: its channels are free then.

        With ``fill`` its own weights are all ones, so that a weight that happens to be zero counts as connected.
        """
        return self

    def order_in_runs(self, shape: Shape, outputs: Order, inputs: Order) -> Order:
        """Return the order of output channels, for a ``shape``, in which most are copied together; by default the
        present one."""
        return outputs

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        """Return the channels of inputs that are copied to channels of the output; none for a layer that is not a
        copy."""
        return []

    def with_selections(self, inputs: Sequence[str], selections: Sequence[Selection]) -> Layer:
        """Return the layer with other selections, for a kind that takes any."""
        raise TypeError(f"{self.name}: layer must copy any selections to be given some, not be a {type(self).__name__}")

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], ViewPlace]
    ) -> Iterator[Views]:
        """Return tensors that may be stored in others so that it has less to copy: all together, then one by one.

        Parameters
        ----------
        layers : sequence of Layer
        tensors : mapping of str to Tensor
        place_of : callable
            Returns the tensor in which a tensor is stored now, and its place.
        """
        return iter(())


# Layers with a clamp and a table.


@dataclass(frozen=True, eq=False)
class Finished(Layer):
    """A layer with an epilogue, into which a table after it can be fused."""

    epilogue: CodeEpilogue = field(default=CodeEpilogue(), kw_only=True)

    def describe(self, source: Tensor, target: Tensor) -> str:
        """Describe the kind, and its table and signs where it has them."""
        table = "" if self.table is None else " + table"
        taken = " + signs" if target.bits == BINARY_BITS and not self.keeps_signs else ""
        return f"{super().describe(source, target)}{table}{taken}"

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """Return the layer with the table composed with its own, if it has one."""
        return dataclasses.replace(self, output=output, epilogue=self.epilogue.after(self.output, table))

    def finished(self, codes: Int8, tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Return codes and finished codes, int8[..., height, width, channels], by the names of the inner and the output
        tensor."""
        output = looked_up(codes, self.table)
        if tensors[self.output].bits == BINARY_BITS:
            output = signs(output)
        return {self.inner: codes, self.output: output}


# Layers with independent channels.


@dataclass(frozen=True, eq=False)
class Channelwise(Finished):
    """A layer that computes each channel from the same channel of its inputs, and all in the same way."""

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        """Return the same layer on fewer channels."""
        return self, channels

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Return the rule that output channels move with those of the inputs."""
        return ChannelRule.TIED


# The graph itself: layers, and the tensors between them.


@dataclass
class Graph:
    """Layers in order of execution, and the tensors between them.

    ``head`` and ``tail`` are ONNX models that run on the host; empty where there is none. The graph's inputs
    are the head's outputs (or the model's inputs), its outputs the tail's inputs (or the model's outputs). Tensors hold
    ``batch`` samples, head and tail one, see :func:`~lutterfly.host.compiler.rewrite.rewrites.batched`.
    """

    tensors: dict[str, Tensor]
    layers: list[Layer]
    inputs: list[str]
    outputs: list[str]
    model: Model = field(default_factory=Model)
    head: Model = field(default_factory=Model)
    tail: Model = field(default_factory=Model)
    notes: list[str] = field(default_factory=list)
    batch: int = 1

    def ends(self, layer: Layer) -> tuple[Tensor, Tensor]:
        """Return a layer's first input and its output."""
        return self.tensors[layer.input], self.tensors[layer.output]

    def kind_of(self, layer: Layer) -> str:
        """Return the kind of a layer."""
        source, target = self.ends(layer)
        return layer.kind(source.shape, target.shape)
