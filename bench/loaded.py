"""Common code of the benchmarks: networks from the command line, on a simulated accelerator, with seeded inputs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lutterfly.examples import digits
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.host.compiler import compile_model
from lutterfly.host.driver import ports
from lutterfly.host.driver.driver import Driver
from lutterfly.host.simulation.simulator import VerilatorTransport

SEED = 1


@dataclass(frozen=True)
class LoadedNetwork:
    """A network on an accelerator, its prologue run.

    Attributes
    ----------
    name : str
        The file's, without its suffix.
    multipliers : int
        Multipliers of the accelerator.
    """

    name: str
    multipliers: int
    program: Program
    transport: VerilatorTransport
    driver: Driver

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference, as the network defines it."""
        return sum(layer.macs for layer in self.program.layers)

    @property
    def multiplier_cycles(self) -> float:
        """Cycles of single multipliers that they take."""
        return sum(layer.multiplier_cycles for layer in self.program.layers)

    def inputs(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Random codes for each input: cycles do not depend on values."""
        return [
            ports.from_codes(port, [generator.integers(-128, 128, port.shape, np.int8) for _ in port.addresses])
            for port in self.program.inputs
        ]


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes: models and a preset."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        default=[digits.model_path("qop")],
        metavar="MODEL",
        help="ONNX files; by default the demo network",
    )
    parser.add_argument("--config", choices=PRESETS, default=DEFAULT_PRESET)
    return parser


def load(models: list[Path], config_name: str) -> Iterator[LoadedNetwork]:
    """Compile each model and load it on an accelerator of its own; the simulator is built first if it must be."""
    config = PRESETS[config_name]
    for path in models:
        program = compile_model(path.read_bytes(), config, path.stem)
        transport = VerilatorTransport(config)
        driver = Driver(transport, config)
        driver.load(program)
        yield LoadedNetwork(path.stem, config.multipliers, program, transport, driver)
