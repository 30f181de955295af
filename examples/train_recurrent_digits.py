"""Train an LSTM that reads handwritten digits row by row, quantise it, and measure it on the simulated core.

    make test-train && .venv/bin/python examples/train_recurrent_digits.py

An image of scikit-learn's digits is a sequence of eight rows with eight pixels each, as a spectrogram is one of frames:
so this stands for a keyword LSTM, and is none. With ``--cell GRU`` it trains a GRU. Takes half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lutterfly.examples.digits import as_input
from lutterfly.examples.train_loop import load, one_cycle, train_epoch
from lutterfly.examples.train_measured import keep, measure, repeatable, tell

CELLS = {"LSTM": nn.LSTM, "GRU": nn.GRU}
EPOCHS, BATCH, HIDDEN = 40, 32, 32
CALIBRATING = 200


class RowReader(nn.Module):
    """One recurrent layer over the rows of an image, and one fully connected layer after the last."""

    def __init__(self, cell: str, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.cell, self.head = CELLS[cell](8, hidden, batch_first=True), nn.Linear(hidden, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Logits, float32[images, 10], of ``pixels``, float32[images, 1, 8, 8]."""
        found, _ = self.cell(pixels[:, 0])
        return self.head(found[:, -1])


def trained(cell: str, pixels: np.ndarray, labels: np.ndarray, epochs: int = EPOCHS) -> RowReader:
    """A network that has seen every image ``epochs`` times, shifted by up to one pixel."""
    repeatable()
    network = RowReader(cell)
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    rate = one_cycle(optimiser, 1e-2, pixels, epochs=epochs, batch=BATCH)
    for _ in range(epochs):
        train_epoch(network, pixels, labels, optimiser, rate, batch=BATCH)
    return network


def main() -> None:
    """Train, quantise, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=CELLS, default="LSTM")
    parser.add_argument("--output", type=Path, help="folder for the float and the int8 model")
    given = parser.parse_args()
    images, held_out, labels, right = load()
    pixels, others = as_input(images), as_input(held_out)
    found = measure(trained(given.cell, pixels, labels), pixels[:CALIBRATING], others)
    for name, logits in (("float", found.of_float), ("int8", found.of_int8)):
        hits = int((logits.argmax(axis=1) == right).sum())
        print(f"{name}: {hits / len(right):.2%}, {hits} of {len(right)} held-out images")
    tell(found)
    keep(found, given.output, f"digits_{given.cell.lower()}")


if __name__ == "__main__":
    main()
