"""Common code of the scripts that train float networks: export, quantisation, and measurement on the simulated core."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lutterfly.host.files.configuration import find_config
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.session.session import InferenceSession
from lutterfly.host.session.verify import verify

SEED = 1


def repeatable() -> None:
    """Make a training give the same weights again."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def exported(network: nn.Module, sample: np.ndarray) -> bytes:
    """The float ONNX file of a network as PyTorch's exporter writes it, with the input ``pixels``."""
    target = io.BytesIO()
    network.eval()
    torch.onnx.export(
        network, (torch.from_numpy(sample[:1]),), target, input_names=["pixels"], dynamo=True, verbose=False
    )
    return target.getvalue()


@dataclass(frozen=True)
class MeasuredNetwork:
    """A float network and what ``lutterfly quantize`` makes of it.

    Attributes
    ----------
    float_model, int8_model : bytes
        The ONNX files.
    of_float, of_int8 : float32[samples, ...]
        Their outputs in ONNX Runtime.
    differing : int
        Samples of which the simulated core has another output than ONNX Runtime.
    cycles : str
        A phrase for each configuration: cycles, those that are predicted, and bytes.
    """

    float_model: bytes
    int8_model: bytes
    of_float: np.ndarray
    of_int8: np.ndarray
    differing: int
    cycles: list[str]


def measure(network: nn.Module, calibrating: np.ndarray, inputs: np.ndarray) -> MeasuredNetwork:
    """Export and quantise a network, and run inputs in ONNX Runtime and on the simulated core.

    Parameters
    ----------
    network : nn.Module
    calibrating : float32[samples, ...]
        They set the scales.
    inputs : float32[samples, ...]
        Of which the network has seen none.
    """
    float_model = exported(network, calibrating)
    int8_model = quantize(float_model, {"pixels": calibrating})
    of_float, of_int8 = (
        np.concatenate([session.run(None, {"pixels": inputs[at : at + 1]})[0] for at in range(len(inputs))])
        for session in map(open_session, (Model(float_model), Model(int8_model)))
    )
    (found,) = InferenceSession(int8_model).run(None, {"pixels": inputs})
    differing = sum(not np.array_equal(*pair) for pair in zip(found, of_int8, strict=True))
    cycles = []
    for name in ("ecp5-85k", "tiny"):
        checked = verify(int8_model, find_config(name), samples=2)
        cycles.append(
            f"{name}: {checked.cycles:,} cycles, predicted {checked.program.predicted_cycles:,}; "
            f"{checked.mismatched_bytes} of {checked.bytes:,} bytes differ"
        )
    return MeasuredNetwork(float_model, int8_model, of_float, of_int8, differing, cycles)


def tell(found: MeasuredNetwork) -> None:
    """Print what a core does, and what it costs."""
    print(f"simulated core: {found.differing} of {len(found.of_int8)} outputs differ from ONNX Runtime's")
    for phrase in found.cycles:
        print(phrase)


def keep(found: MeasuredNetwork, folder: Path | None, name: str) -> None:
    """Write the float and the int8 model into a folder, if one is given."""
    if folder:
        (folder / f"{name}.onnx").write_bytes(found.float_model)
        (folder / f"{name}_int8.onnx").write_bytes(found.int8_model)
