"""What every layer says of itself: the contract between kinds of layers and the passes that work on them."""

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
    CodeFinish,
    Int8,
    Order,
    Place,
    Selection,
    Shape,
    Tensor,
    Views,
    Window,
    looked_up,
)


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """One operation on tensors of the graph.

    A kind of layer says what it is called and what it computes (:meth:`kind`, :meth:`evaluate`). All else has a default
    here, that of a layer of which a pass need not know anything particular.

    Attributes
    ----------
    name : str
        Its ONNX node's, for messages.
    inputs : tuple of str
        A tensor may stand twice among them.
    output : str
    window : Window
        What it reads its inputs with, the first one at least (see :meth:`window_of`).
    finish : CodeFinish or None
        What becomes of its codes after what it computes; None of a layer after which there is nothing.
    is_table : bool
        Whether it is nothing but a table, or the signs, of a tensor: each code of the output depends on one code.
    is_copy : bool
        Whether it copies elements (see :meth:`selections`), so that it is not needed where they lie right already.
    adds_border : bool
        Whether it does nothing but put a border of the zero point around a map, as wide as ``window.pads``.
    weight_place : int or None
        Which input, the last one, is its weights.
    keeps_signs : bool
        Whether it chooses among elements: of +1 and -1 it makes +1 and -1, and of a binary tensor a binary tensor.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    window: Window = field(default=ONE_PIXEL, kw_only=True)
    finish: CodeFinish | None = field(default=None, init=False)

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
        """What it reads one of its inputs with."""
        return self.window

    # What it is called, and what it computes.

    @abstractmethod
    def kind(self, source: Shape, target: Shape) -> str:
        """What it is called, in a word or two, between an input and an output of these shapes."""

    def details(self, source: Shape, target: Shape) -> str:
        """What :meth:`describe` says after the kind."""
        return ""

    def describe(self, source: Tensor, target: Tensor) -> str:
        """The kind with its geometry and with what is fused, between these tensors."""
        shapes = source.shape, target.shape
        return f"{self.kind(*shapes)}{self.details(*shapes)}"

    def macs(self, target: Shape) -> int:
        """Multiply-accumulates for an output of this shape, as the network defines them."""
        return 0

    @abstractmethod
    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """What it computes, with the golden functions.

        Parameters
        ----------
        values : mapping of str to int8[..., height, width, channels]
            Codes of its inputs, of one sample or of several.
        tensors : mapping of str to Tensor
            Of the graph.

        Returns
        -------
        dict of str to int8[..., height, width, channels]
            Its output, and the tensor in front of a fused table.
        """

    def normalised(self, zero_point: int) -> Layer:
        """A layer that computes the same from codes alone, where these stood for codes less a zero point before."""
        return self

    # What may be fused.

    @property
    def table(self) -> Int8 | None:
        """int8[256], what its codes are looked up in at last; None where there is no table."""
        return None if self.finish is None else self.finish.table

    @property
    def inner(self) -> str:
        """The tensor in front of its table and signs: the output where there is neither."""
        return (self.finish and self.finish.inner) or self.output

    @property
    def input_tables(self) -> tuple[Int8 | None, ...]:
        """int8[256] for each input, what its codes are looked up in first of all; None where there is no table."""
        return (None,) * len(self.inputs)

    def with_input_tables(self, inputs: Sequence[str], tables: Sequence[Int8 | None]) -> Layer:
        """The layer with other inputs and tables of theirs, for a kind that has such tables."""
        raise TypeError(f"{self.name}: layer must have tables for its inputs, not be a {type(self).__name__}")

    @property
    def takes_signs(self) -> bool:
        """Whether it can give the signs of its codes, so that a layer after it that takes them becomes part of it."""
        return False

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """The layer with a table after what it gives, for a layer that has a finish.

        Parameters
        ----------
        output : str
            The tensor after the table.
        table : int8[256] or None
            None where the output is binary and holds the signs of what it gave.
        """
        raise TypeError(f"{self.name}: layer must have a finish to take a table, not be a {type(self).__name__}")

    # What border it wants.

    def counts_border(self, code: int) -> bool:
        """Whether its windows find this code in a border of the input's zero point, and count it as any other.

        Such a layer can take over a border that another one puts around its input, by wider ``window.pads``.
        """
        return False

    @property
    def binary_border(self) -> int | None:
        """What it wants in the border of a binary input: +1, -1, or 0 for what counts as nothing; None for no border of
        a binary tensor."""
        return None

    def separated(self, between: str) -> tuple[Layer, Layer] | None:
        """Two layers that together compute the same: along the columns into a tensor ``between``, then along the rows.

        None for a kind that cannot be taken apart.
        """
        return None

    # What a part of its output is computed of.

    def of_rows(self, rows: range, height: int) -> Self | None:
        """The layer that gives some rows of the output alone, of the rows of its inputs, which have ``height``, that
        their windows reach; what lies beyond these is padding as before. None for a layer that cannot."""
        return dataclasses.replace(self, window=self.window.of_rows(rows, height))

    def of_channels(self, channels: range, source: Tensor) -> tuple[Layer, range] | None:
        """The layer that gives some channels of the output alone, and the channels that it needs of each input.

        Parameters
        ----------
        channels : range
        source : Tensor

        Returns
        -------
        layer : Layer
            For inputs that have no other channels.
        needed : range
        None for a layer that cannot.
        """
        return None

    def of_outputs(self, outputs: range, inner: str, output: str) -> Layer | None:
        """The layer that gives some channels of the output alone, equally far apart, of all that it reads, as the
        tensor ``output`` and, where it has a table, ``inner`` in front of that. None for a layer that cannot."""
        return None

    # How its channels depend on those of its inputs.

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Which channels may lie in another order, between these tensors."""
        return ChannelRule.FIXED

    @property
    def connections(self) -> npt.NDArray[np.bool_]:
        """Which input channels each output channel uses, bool[outputs, inputs], of a layer whose channels are free."""
        raise TypeError(f"{self.name}: layer must have free channels to have connections, not be {type(self).__name__}")

    def reordered(self, outputs: Order, inputs: Order) -> Layer:
        """The layer for channels in other orders, as far as its rule allows.

        Parameters
        ----------
        outputs, inputs : int64[channels]
            Which channel lies at each place.
        """
        return self

    def ungrouped(self, *, fill: bool = False) -> Layer:
        """The layer with weights for all inputs, zeros for those that it does not use: its channels are free then.

        With ``fill`` its own weights are all ones: none of them that happens to be zero looks like another group's.
        """
        return self

    def order_in_runs(self, shape: Shape, outputs: Order, inputs: Order) -> Order:
        """The order of output channels, of a ``shape``, in which it copies most of them together; by default as now."""
        return outputs

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        """Which channels of its inputs become which of its output; of a layer that is no copy nothing."""
        return []

    def with_selections(self, inputs: Sequence[str], selections: Sequence[Selection]) -> Layer:
        """The layer that takes other channels of other inputs, for a kind that any selections can be given."""
        raise TypeError(f"{self.name}: layer must copy any selections to be given some, not be a {type(self).__name__}")

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], Place]
    ) -> Iterator[Views]:
        """Tensors that may lie in others so that it has less to copy: all together, then one by one.

        Parameters
        ----------
        layers : sequence of Layer
        tensors : mapping of str to Tensor
        place_of : callable
            Gives the tensor in which a tensor lies now, and where.
        """
        return iter(())


# Layers after which there may be a clamp and a table.


@dataclass(frozen=True, eq=False)
class Finished(Layer):
    """A layer with a finish, which a table after it may become part of."""

    finish: CodeFinish = field(default=CodeFinish(), kw_only=True)

    def describe(self, source: Tensor, target: Tensor) -> str:
        """With its table, and signs, as far as it has them."""
        table = "" if self.table is None else " + table"
        taken = " + signs" if target.bits == BINARY_BITS and not self.keeps_signs else ""
        return f"{super().describe(source, target)}{table}{taken}"

    def with_table(self, output: str, table: Int8 | None) -> Self:
        """A table after a table is one table."""
        return dataclasses.replace(self, output=output, finish=self.finish.after(self.output, table))

    def finished(self, codes: Int8, tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """What it gives, by what it computes: int8[..., height, width, channels] of both by their names."""
        output = looked_up(codes, self.table)
        if tensors[self.output].bits == BINARY_BITS:
            output = signs(output)
        return {self.inner: codes, self.output: output}


# Layers of which every channel stands for itself.


@dataclass(frozen=True, eq=False)
class Channelwise(Finished):
    """A layer that makes each channel of the same channel of its inputs, and all of them alike."""

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        """The same layer on fewer channels."""
        return self, channels

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Where the inputs' move, the output's do."""
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
        """A layer's first input and its output."""
        return self.tensors[layer.input], self.tensors[layer.output]

    def kind_of(self, layer: Layer) -> str:
        """What a layer is called."""
        source, target = self.ends(layer)
        return layer.kind(source.shape, target.shape)
