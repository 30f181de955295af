"""ONNX Runtime: what it raises, on which processors its bytes are defined, and sessions without optimisations."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnxruntime
from onnx import NodeProto
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

#: What ONNX Runtime raises on a model that it cannot load or run.
RUNTIME_ERRORS = (
    runtime_state.Fail,
    runtime_state.InvalidArgument,
    runtime_state.InvalidGraph,
    runtime_state.InvalidProtobuf,
    runtime_state.NotImplemented,
    runtime_state.RuntimeException,
)


# What goes wrong is raised; ONNX Runtime would log it as well.
_FATAL_ONLY = 4


def silence_others() -> None:
    """Have sessions that libraries open in this process log nothing, as the reference's own: what goes wrong is raised.

    There is no way to do so for a while, so this is for commands, not for functions that others call.
    """
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)


@functools.cache
def probe() -> str | None:
    """Say why this processor is no reference for ONNX Runtime's bytes, or None if it is one.

    The kernels that the numerics describe need x86-64 with AVX2 and FMA; others saturate, or round differently.
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return f"ONNX Runtime's bytes are defined on x86-64 processors, and this one is {machine}"
    cpu_info = Path("/proc/cpuinfo")
    if not cpu_info.exists():
        return f"the processor's features cannot be read: {cpu_info} is missing"
    features: set[str] = set()
    for line in cpu_info.read_text().splitlines():
        if line.startswith("flags"):
            features = set(line.partition(":")[2].split())
            break
    missing = [name for name in ("avx2", "fma") if name not in features]
    return f"the processor lacks {', '.join(missing)}, with which ONNX Runtime's bytes are defined" if missing else None


def session_options(*, qdq: bool) -> onnxruntime.SessionOptions:
    """Options that define the reference: all optimisations; int8 activations in QDQ form are fused as uint8 ones."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    if qdq:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    return options


def open_with(model: bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """Open a serialised model with these options, on the processor."""
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def plain_options(*, threads: int = 0) -> onnxruntime.SessionOptions:
    """Options without any optimisation: every node is computed as the file says, and every output has a type.

    ``threads`` is how many compute one operator, by default as many as the processor has cores.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def plain_session(model: onnx.ModelProto, *, threads: int = 0) -> onnxruntime.InferenceSession:
    """Open a model that was written in memory with :func:`plain_options`."""
    return open_with(model.SerializeToString(), plain_options(threads=threads))


def reason_of(error: Exception) -> str:
    """What ONNX Runtime says is wrong: its first line."""
    return (str(error).splitlines() or [""])[0]


# Which tensors of a model random numbers decide, so that no two inferences need give the same.

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
#: Of Dropout: it draws numbers where this input is given, and true.
_TRAINING = 2


def random_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of all tensors that depend on random numbers.

    One with a seed counts as well: ONNX Runtime draws on from it in every inference.
    """
    bodies = {(function.domain, function.name): function for function in model.functions}

    def draws(nodes: Iterable[NodeProto]) -> bool:
        return any(is_source(node) for node in nodes)

    def is_source(node: NodeProto) -> bool:
        if node.op_type in _RANDOM or (node.op_type == "Dropout" and any(node.input[_TRAINING:])):
            return True
        body = bodies.get((node.domain, node.op_type))
        graphs = [graph for item in node.attribute for graph in (item.g, *item.graphs)]
        return (body is not None and draws(body.node)) or any(draws(graph.node) for graph in graphs)

    found: set[str] = set()
    for node in model.graph.node:
        if is_source(node) or found & set(node.input):
            found |= set(node.output)
    return found
