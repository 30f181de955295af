"""A schedule by which connections, drawn or learned, are activated while a network trains.

Source: "Sparse channel connectivity", on incremental training. The learned choice drops blocks by the magnitude of
their weights and activates blocks by that of their gradient, as "Rigging the Lottery" (Evci et al., 2020) does weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import torch
from torch import nn

from ...golden.connections.channel_graph import ChannelGraph
from ...golden.connections.dead_channels import find_dead
from ...golden.connections.patterns import GRANULARITY, ConnectionPattern, draw
from ..layers.sparse import SparseConv2d
from .blocks import block_norms, drop, grow


@dataclass(frozen=True)
class Rewiring:
    """Settings of the rewiring of blocks where the choice is learned.

    Attributes
    ----------
    every : int
        Epochs from one rewiring to the next.
    share : float
        The share of each layer's connected blocks that is replaced, rounded to whole blocks.
    until : int
        The epoch before which the last rewiring is: connections that come late are hardly trained.

    Raises
    ------
    ValueError
        If there is less than one epoch between rewirings, or the share is not from 0 to 1.
    """

    every: int
    share: float
    until: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1 epoch, not {self.every}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {self.share}")


class Densification:
    """Set the patterns of a model's sparse convolutions, epoch by epoch; each pattern contains the one before.

    Call :meth:`step` at the beginning of each epoch. New connections begin with the weight 0 and the optimiser's state
    0, so that they change nothing at first; the weights and the state of the others are kept. No filter is dead at any
    time.

    Without ``rewiring`` connections are those of :func:`.draw`. With it the first pattern is drawn; from then on the
    blocks with the greatest gradient since the last change are activated. A rewiring drops the blocks with the smallest
    weights, and activates as many others, first those without which a filter would be dead. Between rewirings these
    patterns nest as well. A filter without weights after a rewiring gets new ones, drawn from the seed.

    Parameters
    ----------
    model : nn.Module
        The model, whose sparse convolutions are the sparse layers of the graph, by name.
    graph : ChannelGraph
        The channel graph, for instance from :func:`.channel_graph`.
    optimiser : torch.optim.Optimizer
        The optimiser of the model's parameters.
    densities : mapping of int to (float or mapping of str to float)
        Densities as in :func:`.draw`, by the first epoch in which they hold, beginning with 0; they never decrease.
    granularity : (int, int)
        Input channels and output channels of a block.
    seed : int
    rewiring : Rewiring or None

    Raises
    ------
    ValueError
        If the densities do not begin with epoch 0, decrease or are invalid, or the model's sparse convolutions are not
        the graph's.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: ChannelGraph,
        optimiser: torch.optim.Optimizer,
        densities: Mapping[int, float | Mapping[str, float]],
        *,
        granularity: tuple[int, int] = GRANULARITY,
        seed: int,
        rewiring: Rewiring | None = None,
    ) -> None:
        self.layers = _layers(model, graph)
        self.graph, self.optimiser, self.densities = graph, optimiser, dict(densities)
        self.granularity, self.seed, self.rewiring = granularity, seed, rewiring
        self.epoch = -1
        self._counts = self._checked_counts()
        if rewiring is not None:
            for layer in self.layers.values():
                layer.record_gradients()

    def step(self, epoch: int) -> None:
        """Set the patterns for an epoch.

        Raises
        ------
        ValueError
            If it does not follow the epoch of the last call.
        """
        if epoch != self.epoch + 1:
            raise ValueError(f"epoch must be {self.epoch + 1}, the next one, not {epoch}")
        self.epoch = epoch
        if epoch in self.densities and (epoch == 0 or self.rewiring is None):
            drawn = draw(self.graph, self.densities[epoch], granularity=self.granularity, seed=self.seed)
            self._connect(drawn)
        elif epoch in self.densities or self._exchanges(epoch):
            self._connect({name: self._learn(name, epoch) for name in self.layers})
            self._revive(epoch)

    def patterns(self) -> dict[str, ConnectionPattern]:
        """Return the present pattern of each sparse layer."""
        rows, columns = self.granularity
        return {
            name: ConnectionPattern(
                layer.in_channels, layer.out_channels, self.granularity, layer.connections[::rows, ::columns].copy()
            )
            for name, layer in self.layers.items()
        }

    def state_dict(self) -> dict[str, object]:
        """Return the state for a checkpoint; the patterns are in the model's state."""
        return {"epoch": self.epoch, "settings": self._settings()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue after the epoch of a checkpoint.

        Raises
        ------
        ValueError
            If the checkpoint belongs to another schedule.
        """
        for name, value in self._settings().items():
            if state["settings"][name] != value:
                raise ValueError(f"{name} must be {state['settings'][name]}, as in the checkpoint, not {value}")
        self.epoch = state["epoch"]

    def _settings(self) -> dict[str, object]:
        rewiring = None if self.rewiring is None else astuple(self.rewiring)
        given = {"densities": self.densities, "granularity": tuple(self.granularity)}
        return given | {"seed": self.seed, "rewiring": rewiring}

    def _checked_counts(self) -> dict[int, dict[str, int]]:
        """Return the blocks of each layer by epoch; refuse densities as `draw` does."""
        if 0 not in self.densities:
            raise ValueError(f"densities must begin with epoch 0, not {min(self.densities, default='none')}")
        counts: dict[int, dict[str, int]] = {}
        before = dict.fromkeys(self.layers, 0)
        for epoch in sorted(self.densities):
            patterns = draw(self.graph, self.densities[epoch], granularity=self.granularity, seed=self.seed)
            counts[epoch] = {name: int(pattern.blocks.sum()) for name, pattern in patterns.items()}
            for name, count in counts[epoch].items():
                if count < before[name]:
                    raise ValueError(
                        f"{name}: densities must not become less, and do at epoch {epoch}; "
                        "a pattern contains the one before"
                    )
            before = counts[epoch]
        return counts

    def _exchanges(self, epoch: int) -> bool:
        rewiring = self.rewiring
        return rewiring is not None and 0 < epoch < rewiring.until and epoch % rewiring.every == 0

    def _learn(self, name: str, epoch: int) -> ConnectionPattern:
        """Grow to the epoch's count, rewire where it is due, and clear the gradient."""
        layer, before = self.layers[name], self.patterns()[name]
        weights = block_norms(layer.weight, self.granularity)
        gradients = block_norms(layer.dense_gradient, self.granularity)
        layer.dense_gradient.zero_()
        blocks, missing, exchanged = before.blocks, 0, 0
        if epoch in self._counts:
            missing = self._counts[epoch][name] - int(blocks.sum())
        if self._exchanges(epoch):
            # No more are dropped than there are others to activate.
            exchanged = min(round(self.rewiring.share * int(blocks.sum())), int((~blocks).sum()) - missing)
        kept = drop(blocks, weights, exchanged)
        covers_rows = name in self.graph.covering_layers()
        grown = grow(kept, gradients, exchanged + missing, dropped=blocks & ~kept, covers_rows=covers_rows)
        return ConnectionPattern(before.inputs, before.outputs, self.granularity, grown)

    def _connect(self, patterns: Mapping[str, ConnectionPattern]) -> None:
        for name, pattern in patterns.items():
            layer = self.layers[name]
            layer.connect(pattern)
            for state in self.optimiser.state.get(layer.weight, {}).values():
                if isinstance(state, torch.Tensor) and state.shape == layer.weight.shape:
                    state.masked_fill_(~layer.connected, 0)
        assert not find_dead(self.graph, {name: layer.connections for name, layer in self.layers.items()})

    def _revive(self, epoch: int) -> None:
        """Draw weights for filters that have lost all of theirs, in the initial range of ``Conv2d``.

        With zero weights a filter before a ReLU whose output is 0 would have the gradient 0, and never change.
        """
        for position, layer in enumerate(self.layers.values()):
            lost = ~layer.weight.detach().flatten(1).any(dim=1)
            random = np.random.default_rng([self.seed, epoch, position])
            drawn = torch.from_numpy(random.uniform(-1, 1, layer.weight.shape)).to(layer.weight)
            inputs = layer.connected.sum(dim=1, keepdim=True) * layer.weight[0, 0].numel()
            with torch.no_grad():
                layer.weight[lost] = (drawn * layer.connected / inputs.sqrt())[lost]


def _layers(model: nn.Module, graph: ChannelGraph) -> dict[str, SparseConv2d]:
    found = {name: module for name, module in model.named_modules() if isinstance(module, SparseConv2d)}
    wanted = [layer.name for layer in graph.sparse_layers]
    for name in found:
        if name not in wanted:
            raise ValueError(f"{name}: sparse convolution must be a sparse layer of the graph, and is not")
    for name in wanted:
        if name not in found:
            raise ValueError(f"{name}: sparse layer must be a SparseConv2d of the model, and is not")
    return {name: found[name] for name in wanted}
