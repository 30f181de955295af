"""Densification: patterns nest, live weights and their optimiser's state stay, no filter dies, interruptions leave no
trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lutterfly.golden.connections.channel_graph import ChannelGraph
from lutterfly.golden.connections.dead_channels import find_dead
from lutterfly.golden.connections.patterns import draw

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from lutterfly.train import (  # noqa: E402
    Densification,
    Rewiring,
    SparseConv2d,
    channel_graph,
    load_checkpoint,
    save_checkpoint,
)
from lutterfly.train.schedules.blocks import block_norms, drop, grow  # noqa: E402

DENSITIES = {0: 0.01, 2: 0.65, 4: 0.9}
REWIRING = Rewiring(every=1, share=0.3, until=6)


class Residual(nn.Module):
    """Two sparse layers that cover their inputs, and a block with a sum around it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SparseConv2d(8, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.inner = nn.Sequential(SparseConv2d(12, 12, 3, padding=1), nn.ReLU(), SparseConv2d(12, 12, 1))
        self.dropout = nn.Dropout(0.2)
        self.last = SparseConv2d(12, 4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        values = torch.relu(self.norm(self.first(image)))
        return self.last(self.dropout(torch.relu(values + self.inner(values))))


class Run:
    """A training run, made anew from its seed."""

    def __init__(
        self,
        *,
        rewiring: Rewiring | None = None,
        densities: dict = DENSITIES,
        granularity: tuple[int, int] = (4, 2),
        make: Callable = lambda weights: torch.optim.AdamW(weights, lr=0.01),
    ) -> None:
        torch.manual_seed(0)
        self.model = Residual()
        self.graph: ChannelGraph = channel_graph(self.model, torch.zeros(2, 8, 5, 5))
        self.optimiser = make(self.model.parameters())
        self.rate = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, max_lr=0.02, total_steps=100)
        self.schedule = Densification(
            self.model,
            self.graph,
            self.optimiser,
            densities,
            granularity=granularity,
            seed=5,
            rewiring=rewiring,
        )

    @property
    def parts(self) -> dict:
        return {"model": self.model, "optimiser": self.optimiser, "schedule": self.schedule, "rate": self.rate}

    def train(self, epoch: int) -> None:
        """After `step`."""
        self.model.train()
        for _ in range(2):
            # Random numbers of both kinds that data loaders take.
            values = torch.randn(4, 8, 5, 5) + float(np.random.rand())  # noqa: NPY002
            self.optimiser.zero_grad()
            (self.model(values) - values[:, :4, 1:4, 1:4]).square().mean().backward()
            self.optimiser.step()
            self.rate.step()

    def epochs(self, first: int, last: int) -> None:
        for epoch in range(first, last):
            self.schedule.step(epoch)
            self.train(epoch)

    def connections(self) -> dict[str, np.ndarray]:
        return {name: layer.connections.copy() for name, layer in self.schedule.layers.items()}

    def everything(self) -> list[bytes]:
        states = [state for _, state in sorted(self.optimiser.state_dict()["state"].items())]
        tensors = [*self.model.state_dict().values(), *(one for state in states for one in state.values())]
        return [tensor.numpy().tobytes() for tensor in tensors]


@pytest.mark.parametrize("rewiring", [None, Rewiring(every=100, share=0.3, until=100)], ids=["drawn", "learned"])
def test_patterns_nest_and_have_the_densities_of_the_schedule(rewiring: Rewiring | None):
    run = Run(rewiring=rewiring)
    before = None
    for epoch in range(6):
        run.schedule.step(epoch)
        found = run.connections()
        density = DENSITIES[max(start for start in DENSITIES if start <= epoch)]
        drawn = draw(run.graph, density, granularity=(4, 2), seed=5)
        for name, pattern in run.schedule.patterns().items():
            assert pattern.blocks.sum() == drawn[name].blocks.sum()
            np.testing.assert_array_equal(pattern.connections, found[name])
            if rewiring is None or epoch < 2:
                np.testing.assert_array_equal(found[name], drawn[name].connections)
        assert find_dead(run.graph, found) == []
        if before is not None:
            assert all((found[name] >= before[name]).all() for name in found)
            grows = any((found[name] != before[name]).any() for name in found)
            assert grows == (epoch in DENSITIES)
        before = found
        run.train(epoch)


@pytest.mark.parametrize("rewiring", [None, REWIRING], ids=["drawn", "learned"])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_live_weights_and_the_state_for_them_stay_and_all_others_are_zero(rewiring: Rewiring | None, kind: str):
    makers = {
        "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01),
        "SGD": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    }
    run = Run(rewiring=rewiring, make=makers[kind])
    dropped = revived = 0
    for epoch in range(6):
        tensors = {}
        for name, layer in run.schedule.layers.items():
            states = run.optimiser.state.get(layer.weight, {})
            tensors[name] = [layer.weight.data, *(one for one in states.values() if one.shape == layer.weight.shape)]
            assert epoch == 0 or len(tensors[name]) == (3 if kind == "AdamW" else 2)
        copies = {name: [tensor.clone() for tensor in own] for name, own in tensors.items()}
        old = {name: layer.connected.clone() for name, layer in run.schedule.layers.items()}
        run.schedule.step(epoch)
        for name, layer in run.schedule.layers.items():
            kept = (old[name] & layer.connected).expand_as(layer.weight)
            dropped += int((old[name] & ~layer.connected).sum()) if epoch else 0
            for number, (tensor, copy) in enumerate(zip(tensors[name], copies[name], strict=True)):
                assert torch.equal(tensor[kept], copy[kept])
                # Filters that have lost all weights have new ones, from which on they learn.
                lost = ~(copies[name][0] * kept).flatten(1).any(dim=1)
                revived += int(lost.sum()) if epoch else 0
                assert epoch == 0 or not tensor[~lost][~kept[~lost]].any()
                connected = layer.connected.expand_as(tensor)[lost]
                assert torch.equal(tensor[lost] != 0, connected if number == 0 else torch.zeros_like(connected))
        run.train(epoch)
        for name, layer in run.schedule.layers.items():
            mask = (~layer.connected).expand_as(layer.weight)
            assert not any(tensor[mask].any() for tensor in tensors[name])
    assert (dropped > 0) == (revived > 0) == (rewiring is not None)


def test_each_layer_can_have_its_own_densities():
    own = dict.fromkeys(["first", "inner.0", "inner.2", "last"], 1.0)
    run = Run(densities={0: own | {"inner.0": 0.01}, 1: own | {"inner.0": 0.5}})
    counts = []
    for epoch in range(2):
        run.epochs(epoch, epoch + 1)
        counts.append({name: pattern.block_density for name, pattern in run.schedule.patterns().items()})
    # Six columns of three blocks; the rows are needed by the sum around them.
    assert counts == [own | {"inner.0": 6 / 18}, own | {"inner.0": 0.5}]


def test_new_connections_change_nothing_until_they_are_trained():
    run = Run()
    run.epochs(0, 2)
    values = torch.randn(2, 8, 5, 5)
    before = run.model.eval()(values)
    run.schedule.step(2)
    assert torch.equal(run.model(values), before)
    added = [layer.weight[layer.connected.expand_as(layer.weight)] for layer in run.schedule.layers.values()]
    assert any((weights == 0).any() for weights in added)
    run.train(2)
    for layer in run.schedule.layers.values():
        assert layer.weight[layer.connected.expand_as(layer.weight)].all()


def test_an_exchange_drops_the_smallest_and_activates_those_with_the_greatest_gradient():
    run = Run(rewiring=REWIRING, densities={0: 0.5})
    changes = 0
    for epoch in range(5):
        before = run.schedule.patterns()
        layers = run.schedule.layers
        weights = {name: block_norms(layer.weight, (4, 2)) for name, layer in layers.items()}
        gradients = {name: block_norms(layer.dense_gradient, (4, 2)) for name, layer in layers.items()}
        run.schedule.step(epoch)
        if epoch:
            for name, after in run.schedule.patterns().items():
                old, new = before[name].blocks, after.blocks
                count = round(0.3 * int(old.sum()))
                assert count > 0
                # Which ones that are, `test_blocks.py` says; here, that weights and gradients are those of this epoch.
                kept = drop(old, weights[name], count)
                covers = name in run.graph.covering_layers()
                wanted = grow(kept, gradients[name], count, dropped=old & ~kept, covers_rows=covers)
                np.testing.assert_array_equal(new, wanted)
                assert gradients[name].any()
                changes += int((new & ~old).sum())
            assert not any(layer.dense_gradient.any() for layer in layers.values())
        assert find_dead(run.graph, run.connections()) == []
        run.train(epoch)
    assert changes > 10


def test_exchanges_come_when_they_are_due_and_end():
    run = Run(rewiring=Rewiring(every=2, share=0.5, until=5), densities={0: 0.5})
    changed, before = [], None
    for epoch in range(9):
        run.schedule.step(epoch)
        found = run.connections()
        if before is not None and any((found[name] != before[name]).any() for name in found):
            changed.append(epoch)
        before = found
        run.train(epoch)
    assert changed == [2, 4]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_exchanging_nothing_or_everything_leaves_no_filter_dead(share: float):
    run = Run(rewiring=Rewiring(every=1, share=share, until=9), densities={0: 0.01, 1: 0.2, 3: 1.0})
    for epoch in range(5):
        run.schedule.step(epoch)
        assert find_dead(run.graph, run.connections()) == []
        run.train(epoch)
    assert all(found.all() for found in run.connections().values())


@pytest.mark.parametrize("rewiring", [None, REWIRING], ids=["drawn", "learned"])
@pytest.mark.parametrize("interrupted", [1, 3, 4])
def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path: Path, rewiring: Rewiring | None, interrupted: int):
    path = tmp_path / "run.pt"
    whole = Run(rewiring=rewiring)
    np.random.seed(0)  # noqa: NPY002
    whole.epochs(0, 6)

    first = Run(rewiring=rewiring)
    np.random.seed(0)  # noqa: NPY002
    first.epochs(0, interrupted)
    save_checkpoint(path, interrupted, **first.parts)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    # What would have come, but was lost.
    first.epochs(interrupted, interrupted + 1)

    second = Run(rewiring=rewiring)
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    start = load_checkpoint(path, **second.parts)
    assert start == interrupted
    second.epochs(start, 6)
    assert second.everything() == whole.everything()
    assert second.everything() != first.everything()


def test_a_seed_gives_the_same_bytes_and_another_one_others():
    runs = [Run(rewiring=REWIRING) for _ in range(3)]
    runs[2].schedule.seed = 6
    for run in runs:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        run.epochs(0, 4)
    assert runs[0].everything() == runs[1].everything()
    assert runs[0].everything() != runs[2].everything()


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path):
    path, run = tmp_path / "run.pt", Run()
    save_checkpoint(path, 0, **run.parts)
    message = f"{path}: parts must be model, optimiser, rate, schedule, not model, optimiser"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_checkpoint(path, model=run.model, optimiser=run.optimiser)
    with pytest.raises(ValueError, match=r"^rewiring must be None, as in the checkpoint, not \(1, 0.3, 6\)$"):
        Run(rewiring=REWIRING).schedule.load_state_dict(run.schedule.state_dict())
    other = Run(densities={0: 0.5}).schedule
    with pytest.raises(ValueError, match=r"^densities must be \{0: 0.01, 2: 0.65, 4: 0.9\}, as in the checkpoint, not"):
        other.load_state_dict(run.schedule.state_dict())


def test_what_makes_no_schedule_is_refused():
    run = Run()
    with pytest.raises(ValueError, match=r"^epoch must be 0, the next one, not 1$"):
        run.schedule.step(1)
    with pytest.raises(ValueError, match=r"^densities must begin with epoch 0, not 3$"):
        Run(densities={3: 0.5})
    with pytest.raises(ValueError, match=r"^densities must begin with epoch 0, not none$"):
        Run(densities={})
    with pytest.raises(ValueError, match=r"^first: densities must not become less, and do at epoch 2; a pattern con"):
        Run(densities={0: 0.9, 2: 0.5})
    with pytest.raises(ValueError, match=r"^first: density must be more than 0 and at most 1, not 2$"):
        Run(densities={0: 2})
    with pytest.raises(ValueError, match=r"^every must be at least 1 epoch, not 0$"):
        Rewiring(every=0, share=0.3, until=5)
    with pytest.raises(ValueError, match=r"^share must be from 0 to 1, not 1.5$"):
        Rewiring(every=1, share=1.5, until=5)
    graph = channel_graph(nn.Sequential(SparseConv2d(3, 4, 1)), torch.zeros(1, 3, 2, 2))
    with pytest.raises(
        ValueError, match=r"^first: sparse convolution must be a sparse layer of the graph, and is not$"
    ):
        Densification(run.model, graph, run.optimiser, {0: 1}, seed=0)
    with pytest.raises(ValueError, match=r"^first: sparse layer must be a SparseConv2d of the model, and is not$"):
        Densification(nn.Sequential(nn.Conv2d(3, 4, 1)), run.graph, run.optimiser, {0: 1}, seed=0)
