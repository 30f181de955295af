"""Write an architecture of torchvision with random weights, quantised, as an ONNX file.

    python bench/architectures.py resnet50 /tmp/resnet50.onnx
    lutterfly verify /tmp/resnet50.onnx

Needs the extra `architectures`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torchvision import models

from lutterfly.train import export_onnx


def quantised(name: str, size: int) -> bytes:
    """The int8 ONNX file of an architecture; its batch normalisation knows random inputs, and so do the scales."""
    torch.manual_seed(0)
    model, samples = models.get_model(name, weights=None), torch.randn(4, 3, size, size)
    with torch.no_grad():
        for _ in range(3):
            model.train()(samples)
    return export_onnx(model.eval(), samples.numpy())


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=models.list_models(models), metavar="NAME")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--size", type=int, default=224, help="rows and columns of the image (default: 224)")
    given = parser.parse_args()
    given.file.write_bytes(quantised(given.name, given.size))


if __name__ == "__main__":
    main()
