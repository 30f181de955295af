"""The training loop that the examples share: what an epoch shows a network, and when it calls back."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")

from lutterfly.examples.train_loop import one_cycle, shifted, train_epoch  # noqa: E402

IMAGES, BATCH = 10, 4


class Listening(torch.nn.Module):
    """Ten logits of an image, and the images that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 10)
        self.seen: list[torch.Tensor] = []

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.seen.append(pixels)
        return self.linear(pixels.flatten(1))


def trained(seed: int, epochs: int = 2) -> tuple[Listening, list[int], list[float]]:
    """A network, how many batches it had seen at each call back, and the rates after these."""
    torch.manual_seed(seed)
    model = Listening()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    # Each image has one value of its own, in the middle: so it is known however it is shifted.
    pixels = np.zeros((IMAGES, 1, 8, 8), np.float32)
    pixels[:, 0, 4, 4] = 1 + np.arange(IMAGES)
    rate = one_cycle(optimiser, 0.1, pixels, epochs=epochs, batch=BATCH)
    calls, rates = [], []

    def after_step() -> None:
        calls.append(len(model.seen))
        rates.append(rate.get_last_lr()[0])

    for _ in range(epochs):
        train_epoch(model, pixels, np.zeros(IMAGES, np.uint8), optimiser, rate, batch=BATCH, after_step=after_step)
    return model, calls, rates


def test_an_epoch_shows_every_image_once_and_calls_back_after_every_step():
    model, calls, rates = trained(seed=1)
    assert [len(batch) for batch in model.seen] == 2 * [4, 4, 2]
    orders = [torch.cat(model.seen[first : first + 3]).amax((1, 2, 3)).tolist() for first in (0, 3)]
    assert [sorted(order) for order in orders] == 2 * [list(range(1, 1 + IMAGES))]
    assert orders[0] != orders[1]
    assert calls == [1, 2, 3, 4, 5, 6]
    # One cycle: up once, then down to almost nothing when the training ends.
    top = rates.index(max(rates))
    assert rates[-1] < rates[0] < rates[top] <= 0.1
    assert rates == sorted(rates[: top + 1]) + sorted(rates[top + 1 :], reverse=True)


def test_a_seed_repeats_a_training():
    first, again, other = (trained(seed)[0].linear.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_images_move_by_at_most_one_pixel():
    torch.manual_seed(0)
    pixels = torch.zeros(200, 1, 8, 8)
    pixels[:, 0, 4, 4] = 1
    places = {tuple(place) for place in shifted(pixels).nonzero()[:, 2:].tolist()}
    assert places == {(row, column) for row in (3, 4, 5) for column in (3, 4, 5)}
