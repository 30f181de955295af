"""ONNX Runtime as the reference: every integer tensor of a model, byte for byte as ONNX Runtime computes it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

import numpy as np
import onnx

from .arrays import contents
from .executed import Prepared
from .model import Model
from .model_graph import computed_tensors, expose, model_inputs
from .runtime import open_with, plain_session, random_tensors

INTEGER_TYPES = ("tensor(int8)", "tensor(uint8)")

_FLOAT_WINDOWS = ("Conv", "FusedConv", "AveragePool", "GlobalAveragePool")


def activation_names(model: onnx.ModelProto) -> list[str]:
    """Names of the int8 and uint8 tensors that nodes compute from the model's inputs, in order."""
    dynamic = {value.name for value in model_inputs(model)}
    for node in model.graph.node:
        if dynamic & set(node.input):
            dynamic |= set(node.output)
    types = {value.name: value.type for value in plain_session(expose(model, computed_tensors(model))).get_outputs()}
    return [name for name in computed_tensors(model) if name in dynamic and types[name] in INTEGER_TYPES]


class Reference:
    """A model in ONNX Runtime that shows its integer tensors.

    Its outputs are those of the plain model, as a user runs it. The tensors in between are those of the graph that ONNX
    Runtime executes, see :func:`executed_model`; showing them changes nothing in it.

    Parameters
    ----------
    model : Model
        The user's model.

    Attributes
    ----------
    output_names : list of str
        The model's own outputs.
    random : set of str
        Names of outputs and shown tensors that depend on random numbers, and so differ from run to run.
    """

    def __init__(self, model: Model):
        self.output_names = [value.name for value in model.proto.graph.output]
        self._inputs = {value.name for value in model_inputs(model.proto)}
        prepared = Prepared(model)
        self._plain = open_with(prepared.model.data, prepared.options())
        executed = prepared.executed
        self._exposed_names = [name for name in activation_names(executed) if name not in self.output_names]
        self._uncertain = _after_float_windows(executed)
        self.random = random_tensors(model.proto) | random_tensors(executed)
        self._exposed = plain_session(expose(executed, self._exposed_names))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference.

        Parameters
        ----------
        feeds : mapping of str to array
            The model's inputs.

        Returns
        -------
        dict of str to array
            The model's outputs and every int8 or uint8 tensor by name, inputs included. Where the two sessions differ
            in an output, which float convolutions can cause, tensors after such convolutions are left out: they may
            differ from
            those of the plain model.
        """
        outputs = dict(zip(self.output_names, self._plain.run(self.output_names, dict(feeds)), strict=True))
        names = [*self.output_names, *self._exposed_names]
        shown = dict(zip(names, self._exposed.run(names, dict(feeds)), strict=True))
        inputs = {name: feeds[name] for name in self._inputs if feeds[name].dtype in (np.int8, np.uint8)}
        certain = outputs.keys() - self.random
        if any(contents(outputs[name]) != contents(shown[name]) for name in certain):
            shown = {name: value for name, value in shown.items() if name not in self._uncertain}
        return inputs | shown | outputs


def _after_float_windows(executed: onnx.ModelProto) -> set[str]:
    """Return the tensors that depend on a float convolution or average, whose layout ONNX Runtime's last level
    changes."""
    found: set[str] = set()
    for node in executed.graph.node:
        if node.op_type in _FLOAT_WINDOWS or found & set(node.input):
            found |= set(node.output)
    return found


@functools.lru_cache(maxsize=8)
def reference(model: Model) -> Reference:
    """Return the :class:`Reference` of a model; the last few are kept open."""
    return Reference(model)


def run(model: Model, feeds: Mapping[str, np.ndarray], outputs: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Run one inference in ONNX Runtime, see :meth:`Reference.run`; ``outputs`` selects tensors, by default all."""
    values = reference(model).run(feeds)
    return values if outputs is None else {name: values[name] for name in outputs}
