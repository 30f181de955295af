"""Tries networks of the second source: everything compared with everything, and what fails reported with its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from cocotb_tests.support.networks.families import Network, network
from cocotb_tests.support.oracles.exactness import CONFIG_KEY, REGRESSIONS
from cocotb_tests.support.oracles.met import Coverage
from lutterfly.golden.config import Config
from lutterfly.golden.presets import PRESETS
from lutterfly.host.driver.driver import AcceleratorError
from lutterfly.host.model import model_graph, reference
from lutterfly.host.model.arrays import describe_model
from lutterfly.host.model.model import Model
from lutterfly.host.session.compare import Verification
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import SimulationError

# Makes a network on which something fails smaller: the shortest beginning of it that still fails.


def shrink(model: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The first of the networks that end at an inner tensor of codes that fails, in the order of the file; else all."""
    return next((part for part in beginnings(model) if fails(part)), model)


def beginnings(model: bytes) -> Iterator[bytes]:
    """For each tensor of codes that is computed: the network that ends there."""
    rng = np.random.default_rng(0)
    feeds = {}
    for info in describe_model(Model(model))[0]:
        whole = rng.integers(0, 128, (1, *info.sample_shape))
        feeds[info.name] = whole.astype(info.dtype)
    loaded = onnx.load_from_string(model)
    codes = {
        name: value for name, value in reference.run(Model(model), feeds).items() if value.dtype in (np.int8, np.uint8)
    }
    for name in model_graph.computed_tensors(loaded):
        if name in codes:
            yield _until(loaded, name, codes[name]).SerializeToString()


def _until(model: onnx.ModelProto, name: str, value: np.ndarray) -> onnx.ModelProto:
    """The part of a model that computes one tensor."""
    needed, nodes = {name}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            nodes.append(node)
    inputs = [entry for entry in model.graph.input if entry.name in needed]
    constants = [entry for entry in model.graph.initializer if entry.name in needed]
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    batch = inputs[0].type.tensor_type.shape.dim[0]
    output = helper.make_tensor_value_info(name, kind, [batch.dim_param or batch.dim_value, *value.shape[1:]])
    graph = helper.make_graph(nodes[::-1], model.graph.name, inputs, [output], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


#: How the problem of a network begins for which there is no program.
REFUSED = "refused: "


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a network.

    Attributes
    ----------
    problem : str
        What is wrong: a refusal, a stop or differing bytes; empty if nothing is.
    late : str
        Layers whose cycles are not as predicted.
    """

    network: Network
    problem: str
    late: str
    verification: Verification | None

    @property
    def text(self) -> str:
        return f"{self.network.text}: {self.problem or self.late or 'right'}"


def judge(model: bytes, config: Config, batch: int = 1) -> tuple[str, Verification | None]:
    """What is wrong with a network on the golden functions, the golden machine or the simulated core."""
    try:
        verification = verify(model, config, samples=batch, batch=batch)
    except (AcceleratorError, SimulationError) as error:
        return str(error), None
    except ValueError as error:
        return f"{REFUSED}{error}", None
    if verification.mismatched_bytes:
        wrong = [tensor.name for tensor in verification.tensors if tensor.mismatched]
        return (
            f"{verification.mismatched_bytes} of {verification.bytes} bytes differ, first in {wrong[0]}",
            verification,
        )
    if not any(tensor.rtl is not None for tensor in verification.tensors):
        return "nothing was computed on the core", verification
    return "", verification


def attempt(seed: int) -> Trial:
    """Try the network of a seed."""
    found = network(seed)
    problem, verification = judge(found.model, found.config, found.batch)
    late = ""
    if verification is not None:
        late = "; ".join(
            f"{layer.name} took {layer.measured} cycles, {layer.predicted} predicted"
            for layer in verification.layers
            if not layer.is_right
        )
    return Trial(found, problem, late, verification)


def keep(trial: Trial) -> str:
    """Keep the smallest beginning of the network that is wrong in some way, and say where."""
    found = trial.network
    small = shrink(found.model, lambda model: bool(judge(model, found.config, found.batch)[0]))
    path = REGRESSIONS / f"failing_{found.family}_{found.seed}_{found.config_name}.onnx"
    model = onnx.load_from_string(small)
    model.metadata_props.add(key=CONFIG_KEY, value=found.config.to_json())
    path.write_bytes(model.SerializeToString())
    return f"{trial.text}; the shortest beginning that fails is kept as {path}"


@dataclass
class Sweep:
    """What became of many networks."""

    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    #: By odd accelerators alone, whose memories some networks do not fit.
    refused: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def run(self, seeds: Iterable[int]) -> None:
        """Try their networks one by one."""
        for seed in seeds:
            trial = attempt(seed)
            if trial.problem.startswith(REFUSED) and trial.network.config_name not in PRESETS:
                self.refused.append(trial.text)
            elif trial.problem:
                self.wrong.append(keep(trial))
            elif trial.late:
                self.late.append(trial.text)
            if trial.verification is not None:
                self.coverage.sample(trial.verification.program, trial.network.config)
