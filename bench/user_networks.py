"""Export networks from PyTorch as a user does, quantise them, and verify every byte on the simulated core.

    .venv/bin/python bench/user_networks.py mobilenet_v3_small efficientnet_b0 --size 64
    .venv/bin/python -m bench.user_networks cocotb_tests.support.networks.torch_networks:Gated

A network is one of torchvision's (of the extra `architectures`), or MODULE:CLASS, as those of `enlarging.py`, which say
how large their inputs are. It has random weights; its batch normalisation and the scales know random
inputs. `torch.onnx.export` is as PyTorch has it, `quantize` is that of the command `lutterfly quantize`.
"""

from __future__ import annotations

import argparse
import importlib
import io

import numpy as np
import torch
from torch import nn

from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.quantize import quantize
from lutterfly.host.session.compare import Verification
from lutterfly.host.session.verify import verify

EXPORTERS = {"dynamo": True, "legacy": False}
_SAMPLES = 16


def network(name: str) -> nn.Module:
    """A network with random weights."""
    torch.manual_seed(0)
    if ":" in name:
        module, kind = name.split(":")
        return getattr(importlib.import_module(module), kind)()
    from torchvision import models  # noqa: PLC0415 - not needed for the others

    return models.get_model(name, weights=None)


def exported(model: nn.Module, samples: torch.Tensor, *, dynamo: bool) -> bytes:
    """The float ONNX file; the network's batch normalisation knows the samples."""
    with torch.no_grad():
        for _ in range(3):
            model.train()(samples)
    target = io.BytesIO()
    torch.onnx.export(model.eval(), (samples[:1],), target, input_names=["image"], dynamo=dynamo, verbose=False)
    return target.getvalue()


def row(name: str, exporter: str, found: Verification, multipliers: int) -> str:
    """A line of a Markdown table."""
    program = found.program
    macs, used = sum(layer.macs for layer in program.layers), program.utilisation(found.cycles, multipliers)
    return (
        f"| {name.rpartition(':')[2]} | {exporter} | {macs:,} | {found.cycles:,} | {program.predicted_cycles:,} "
        f"| {used:.1%} | {found.bytes:,}, {found.mismatched_bytes} |"
    )


def main() -> None:
    """Print a Markdown table with a line for each network and exporter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--size", type=int, default=224, help="rows and columns of the image (default: 224)")
    parser.add_argument("--channels", type=int, default=3, help="of the image (default: 3)")
    parser.add_argument("--exporters", nargs="+", choices=EXPORTERS, default=list(EXPORTERS))
    parser.add_argument("--config", choices=PRESETS, default=DEFAULT_PRESET)
    given = parser.parse_args()
    config = PRESETS[given.config]
    print(
        "| network | exporter | multiply-accumulates | cycles | predicted | utilisation | bytes compared, different |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in given.names:
        for exporter in given.exporters:
            model = network(name)
            shape = getattr(model, "shape", (given.channels, given.size, given.size))
            samples = torch.from_numpy(np.random.default_rng(1).normal(size=(_SAMPLES, *shape)).astype(np.float32))
            data = exported(model, samples, dynamo=EXPORTERS[exporter])
            found = verify(quantize(data, {"image": samples.numpy()}), config, samples=1)
            print(row(name, exporter, found, config.multipliers), flush=True)


if __name__ == "__main__":
    main()
