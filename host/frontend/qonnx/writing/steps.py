"""Layout operators and max pooling on codes."""

from __future__ import annotations

from onnx import NodeProto, helper

from .writer import Writer


def write_step(writer: Writer, node: NodeProto, codes: str, result: str) -> str:
    """A layout operator, or max pooling, of codes instead of their values: the codes rise with them.

    Its other inputs are constants.
    """
    copied = helper.make_node(node.op_type, [codes, *node.input[1:]], [result], f"{node.name} codes")
    copied.attribute.extend(node.attribute)
    writer.keep([copied])
    return result
