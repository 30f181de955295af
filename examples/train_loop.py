"""Common code of the scripts that train on handwritten digits: their images, and one epoch of training.

Every random number is PyTorch's own, so that a seed makes a training repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

HELD_OUT = 360
#: Which images are held out.
SPLIT_SEED = 1


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images, uint8[images, 8, 8] from 0 to 16, to train on and held out; then the labels of both, uint8[images]."""
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    return tuple(train_test_split(images, labels, test_size=HELD_OUT, random_state=SPLIT_SEED, stratify=labels))


def shifted(pixels: torch.Tensor) -> torch.Tensor:
    """Each image moved by at most one pixel each way, zeros moving in: more data than there is."""
    padded = functional.pad(pixels, (1, 1, 1, 1))
    tops, lefts = torch.randint(0, 3, (2, len(pixels)))
    crops = zip(padded, tops, lefts, strict=True)
    return torch.stack([image[:, top : top + 8, left : left + 8] for image, top, left in crops])


def one_cycle(optimiser: Optimizer, highest: float, images: Sized, *, epochs: int, batch: int) -> LRScheduler:
    """A learning rate that rises to ``highest`` once, and falls, over all batches of a training."""
    return OneCycleLR(optimiser, max_lr=highest, total_steps=epochs * -(-len(images) // batch))


def train_epoch(
    model: nn.Module,
    pixels: np.ndarray,
    labels: np.ndarray,
    optimiser: Optimizer,
    rate: LRScheduler,
    *,
    batch: int,
    label_smoothing: float = 0.05,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Train on every image once, shifted, in batches of a random order.

    Parameters
    ----------
    model : nn.Module
    pixels : float32[images, 1, 8, 8]
    labels : uint8[images]
    optimiser : Optimizer
    rate : LRScheduler
        Stepped after each batch, see :func:`one_cycle`.
    batch : int
        Images of a batch.
    label_smoothing : float
    after_step : callable
        Called after each step of the optimiser, to clip weights for instance.
    """
    inputs, targets = torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64))
    for chosen in torch.randperm(len(inputs)).split(batch):
        optimiser.zero_grad()
        logits = model(shifted(inputs[chosen]))
        functional.cross_entropy(logits, targets[chosen], label_smoothing=label_smoothing).backward()
        optimiser.step()
        after_step()
        rate.step()
