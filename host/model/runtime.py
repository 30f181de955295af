"""ONNX Runtime: its exceptions, the processors on which its bytes are defined, and sessions without optimisations."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnxruntime
from onnx import NodeProto
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

#: Exceptions of ONNX Runtime on a model that it cannot load or run.
RUNTIME_ERRORS = (
    runtime_state.Fail,
    runtime_state.InvalidArgument,
    runtime_state.InvalidGraph,
    runtime_state.InvalidProtobuf,
    runtime_state.NotImplemented,
    runtime_state.RuntimeException,
)


# Errors are raised; ONNX Runtime would log them as well.
_FATAL_ONLY = 4


def silence_others() -> None:
    """Turn off the log of sessions that libraries open in this process: errors are raised.

    It cannot be turned on again, so this is for commands, not for functions of the library.
    """
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)


@functools.cache
def probe() -> str | None:
    """Return the reason why this processor is not a reference for ONNX Runtime's bytes, or None if it is one.

    The numerics describe kernels that need x86-64 with AVX2 and FMA; others saturate, or round differently.
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
    """Return the options that define the reference: all optimisations; int8 activations in QDQ form are fused like
    uint8."""
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
    """Return options without any optimisation: every node is computed as in the file, and every output has a type.

    ``threads`` is the number of threads that compute one operator, by default that of the processor's cores.
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
    """Return the first line of ONNX Runtime's message."""
    return (str(error).splitlines() or [""])[0]


# Tensors of a model that depend on random numbers, and so may differ from inference to inference.

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
#: The input of Dropout that makes it draw numbers, where it is given and true.
_TRAINING = 2


def random_tensors(model: onnx.ModelProto) -> set[str]:
    """Return the names of all tensors that depend on random numbers.

    Operators with a seed count as well: ONNX Runtime continues the sequence in every inference.
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
