"""From an ONNX file to the quantised graph, in ordered passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..graph import Graph
from ..graph.evaluate import OperationRow, describe
from ..model.model import Model
from ..model.model_graph import INTEGER_PRODUCTS, QUANTISER
from ..model.whole_samples import with_axis
from .build import Build
from .classify import check_wide, classify, partition
from .elements import settle_inputs, settle_output
from .fragments import PRODUCTS, Fragment, Kind, deliver_constants, find_fragments
from .functions.functions import follow
from .integer_products import INTEGER_LOWERING, check_weights, explain_float
from .lowering.copies import merge_pads
from .lowering.float_products import check_transposed, read_float_product
from .lowering.inputs import place_input
from .lowering.products import check_linear, check_one_type
from .lowering.space_to_batch import merge_dilations
from .lowering.tables import clip_ahead, compose_tables, fuse_tables, pack_signs, share_signs
from .lowerings import LOWERINGS
from .parse import check_file, fix_batch, measure, parse
from .qonnx import notes_of, rewrite
from .source import ModelError, Source, UnsupportedError, cut_between, without_quantising

__all__ = ["PASSES", "ModelError", "OperationRow", "describe", "import_model"]


@dataclass
class _State:
    """The state between two passes."""

    given: Source
    source: Source | None = None
    build: Build | None = None
    fragments: list[Fragment] = field(default_factory=list)
    middle: list[Fragment] = field(default_factory=list)


def import_model(model: bytes | Model, name: str = "model") -> Graph:
    """Read a quantised ONNX model.

    Parameters
    ----------
    model : bytes or Model
        The contents of the file, or the parsed model, in QOperator or QDQ form with int8 or uint8 activations.
    name : str
        Name of the model in messages.

    Returns
    -------
    Graph
        The graph, which holds the given ``model``, rewritten if it is a QONNX model.

    Raises
    ------
    ModelError
        If the file is no ONNX model, is not quantised, or cannot be run with the bytes of ONNX Runtime; the message
        names the node and the remedy.
    """
    model = Model.of(model)
    check_file(model, name)
    model = with_axis(model)
    try:
        state = _State(parse(rewrite(model, name), name))
        for _, run in PASSES:
            run(state)
    except ModelError as error:
        if model.proto.producer_name != QUANTISER:
            raise
        raise ModelError(without_quantising(str(error))) from error
    state.build.graph.notes = notes_of(state.given.model)
    return state.build.graph


def _replace_integer_products(state: _State) -> None:
    state.given = INTEGER_LOWERING.lower(state.given)


def _follow(state: _State) -> None:
    state.source = follow(state.given)


def _measure(state: _State) -> None:
    fix_batch(state.source.model)
    measure(state.source)


def _merge_dilations(state: _State) -> None:
    merge_dilations(state.source)


def _clip_ahead(state: _State) -> None:
    clip_ahead(state.source)


def _find_fragments(state: _State) -> None:
    deliver_constants(state.source)
    check_wide(state.source)
    state.fragments = find_fragments(state.source)
    classify(state.source, state.fragments)


def _check_products(state: _State) -> None:
    for fragment in state.fragments:
        if fragment.kind is Kind.TRANSPOSED:
            check_transposed(state.source, fragment)
        if fragment.kind is Kind.LINEAR:
            if fragment.main.op_type not in INTEGER_PRODUCTS:
                _check_float(state, fragment)
                continue
            check_weights(state.given, fragment.main.name)
            check_linear(state.source, fragment)
    check_one_type(state.source, state.fragments)


def _check_float(state: _State, fragment: Fragment) -> None:
    """Refuse a product in float unless its bytes are those of the integer sum."""
    check_weights(state.given, fragment.main.name)
    try:
        read_float_product(state.source, fragment).check()
    except UnsupportedError as error:
        raise explain_float(state.given, fragment.main.name, error) from error
    fragment.kind = Kind.FLOAT_LINEAR


def _lower(state: _State) -> None:
    """Choose the fragments that run on the accelerator, and lower them.

    Only a lowering itself can tell whether it is possible: that depends on where the layers before have put their
    results, and on the bytes of its own layers. A fragment that is refused may still run on the host. The choice is
    then made again without it, and the layers of all fragments before the first difference are kept.
    """
    #: The build before the first fragment of the middle, and after each one that has been lowered.
    builds = [Build(state.source, Graph({}, [], [], [], model=state.source.file))]
    state.middle = partition(state.source, state.fragments)
    while len(builds) <= len(state.middle):
        fragment = state.middle[len(builds) - 1]
        found = _lowered(builds[-1], fragment)
        if isinstance(found, Build):
            builds.append(found)
            continue
        fragment.kind, fragment.reason, fragment.remedy = Kind.HOST, found.reason, found.remedy
        before, state.middle = state.middle, partition(state.source, state.fragments)
        # The lists differ at the latest at the refused fragment.
        kept = next(at for at, one in enumerate(before) if state.middle[at : at + 1] != [one])
        del builds[kept + 1 :]
    state.build = builds[-1]
    if not state.build.graph.layers:
        raise ModelError(
            f"{state.given.name}: no layer can run on the accelerator, as ONNX Runtime drops every "
            "operator without effect, and nothing is left to compute; it needs a quantised convolution, "
            "matrix product or pointwise operator"
        )


def _lowered(build: Build, fragment: Fragment) -> Build | UnsupportedError:
    """Return a build with the layers of another fragment, or why the accelerator cannot run that.

    Raises
    ------
    ModelError
        If it is a product, which the host may not compute instead.
    """
    build = build.copy()
    for name in fragment.inputs:
        if name not in build.places:
            place_input(build, name)
    try:
        if not LOWERINGS[fragment.kind].moves:
            settle_inputs(build, fragment)
        LOWERINGS[fragment.kind].lower(build, fragment)
    except UnsupportedError as error:
        if fragment.kind in PRODUCTS:
            raise ModelError(f"{build.source.name}: {error.reason}; {error.remedy}") from error
        return error
    return build


def _cut_host_parts(state: _State) -> None:
    """Find the accelerator's outputs, and cut out what runs on the host before and after it."""
    source, graph = state.source, state.build.graph
    read = (name for fragment in state.fragments if fragment not in state.middle for name in fragment.inputs)
    outside = {*read, *source.outputs}
    for name in (name for fragment in state.middle for name in fragment.outputs if name in outside):
        tensor = settle_output(state.build, name)
        if tensor not in (*graph.outputs, *graph.inputs):
            graph.outputs.append(tensor)
    head_outputs = [name for name in graph.inputs if name not in source.inputs]
    if head_outputs:
        graph.head = Model.written(cut_between(source, [], head_outputs))
    tail_outputs = [name for name in source.outputs if name not in graph.outputs]
    if tail_outputs:
        graph.tail = Model.written(cut_between(source, graph.outputs, tail_outputs))


def _merge_pads(state: _State) -> None:
    merge_pads(state.build.graph)


def _pack_signs(state: _State) -> None:
    share_signs(state.build.graph)
    pack_signs(state.build.graph)


def _compose_tables(state: _State) -> None:
    compose_tables(state.build.graph)


def _fuse_tables(state: _State) -> None:
    fuse_tables(state.build.graph)


#: The passes in order, with the names that the documentation uses.
PASSES: tuple[tuple[str, Callable[[_State], None]], ...] = (
    ("replace integer products", _replace_integer_products),
    ("follow ONNX Runtime", _follow),
    ("measure", _measure),
    ("merge dilations", _merge_dilations),
    ("clip ahead", _clip_ahead),
    ("find fragments", _find_fragments),
    ("check products", _check_products),
    ("partition and lower", _lower),
    ("cut host parts", _cut_host_parts),
    ("merge pads", _merge_pads),
    ("pack signs", _pack_signs),
    ("compose tables", _compose_tables),
    ("fuse tables", _fuse_tables),
)
