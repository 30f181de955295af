"""Rewriting of QONNX networks, as Brevitas exports them, to models that plain ONNX Runtime runs and the other passes
read.

Every quantised activation becomes int8 codes, followed by a DequantizeLinear for readers of its values. Products of
codes become binary convolutions, as functions of the model, or quantised products. The ends of the network may remain
in float.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto

from ...graph import BinaryConvolution
from ...model.model import Model
from ..fragments import LAYOUT, MAX_POOLING, TRANSPARENT, label
from ..lowering.lowering import OperatorLowering, Runs
from ..parse import check_file
from ..source import ModelError
from .chain import Chain, find_chain, is_scalar
from .codes import write_average, write_product_codes, write_sum
from .network import BIPOLAR, INTEGER, MeasuredNetwork, Quantiser, is_qonnx, read_network, read_quantiser
from .products import PRODUCTS, Coded, check_scale, read_product
from .signs import can_count, float_results, write_code_signs, write_counted, write_product_signs
from .writer import Writer, notes_of, write_step

__all__ = ["QONNX_LOWERINGS", "notes_of", "rewrite"]

_FLOAT = onnx.TensorProto.FLOAT
#: QONNX's own operators in the list of supported ones; their values become part of the layers around them.
QONNX_LOWERINGS = (
    OperatorLowering(read_quantiser, BIPOLAR, Runs.LAYER, (BinaryConvolution,), title="binary quantisers of QONNX"),
    OperatorLowering(read_quantiser, INTEGER, Runs.TABLE, (), title="quantisers of QONNX"),
)


def rewrite(model: Model, name: str) -> Model:
    """Rewrite a model with QONNX operators; return any other model unchanged.

    Raises
    ------
    ModelError
        If the accelerator cannot run a part of it with the values of QONNX; the message names the node and the remedy.
    """
    if not is_qonnx(model.proto):
        return model
    written = Model.written(_Rewriting(read_network(model.proto, name)).run())
    check_file(written, name)
    return written


class _Rewriting:
    def __init__(self, network: MeasuredNetwork):
        self._network, self._writer = network, Writer(network)
        self._coded: dict[str, Coded] = {}
        self._in_float = float_results(network)

    def run(self) -> onnx.ModelProto:
        """Write all nodes in order of execution."""
        for node in self._network.model.graph.node:
            quantiser = self._network.quantisers.get(node.output[0])
            is_activation = any(name in self._network.shapes for name in node.output)
            if quantiser is None:
                if not (is_activation and (self._pass_on(node) or self._count(node))):
                    self._writer.keep([node])
            elif is_activation:
                self._quantise(quantiser)
            else:
                self._writer.keep(*quantiser.spell(node.output[0]))
        return self._writer.model()

    def _pass_on(self, node: NodeProto) -> bool:
        """Write an operator that only moves codes, or chooses among them, on codes."""
        source = self._coded.get(node.input[0]) if node.input else None
        if node.op_type == "Cast" and self._network.measured.is_codes(node.input[0]):
            return self._read_integers(node)
        if source is None or node.op_type not in (*LAYOUT, *MAX_POOLING, *TRANSPARENT) or len(node.output) != 1:
            return False
        codes = write_step(self._writer, node, source.codes, self._writer.name(f"{node.output[0]} codes"))
        self._show(node, Coded(**{**vars(source), "codes": codes}))
        return True

    def _read_integers(self, node: NodeProto) -> bool:
        """Write an input of 8-bit integers, which the network reads as float32, without change."""
        types, name = self._network.measured.types, node.output[0]
        if types[name] != np.float32:
            return False
        zero_point = -128 if types[node.input[0]] == np.uint8 else 0
        values = self._writer.add("Cast", [node.input[0]], self._writer.name(f"{name} in float"), node.name, to=_FLOAT)
        codes = self._writer.name(f"{name} codes")
        self._writer.quantise(values, codes, np.float32(1), zero_point, node.name)
        self._show(node, Coded(codes, np.float32(1), zero_point, -128, 127))
        return True

    def _count(self, node: NodeProto) -> bool:
        """Write a binary product whose results the model gives in float."""
        if node.output[0] not in self._in_float or node.input[0] not in self._coded:
            return False
        try:
            product = read_product(self._network, node, self._coded[node.input[0]])
        except ModelError:
            # The host computes any other product as it is, with any weights.
            return False
        if not can_count(product):
            return False
        write_counted(self._writer, self._network, product)
        return True

    def _show(self, node: NodeProto, coded: Coded) -> None:
        """Record codes, and write their values for readers in float."""
        self._coded[node.output[0]] = coded
        self._writer.dequantise(coded, node.output[0], node.name)

    def _quantise(self, quantiser: Quantiser) -> None:
        network, writer, node = self._network, self._writer, quantiser.node
        scale = self._scale(quantiser)
        chain = find_chain(network, self._coded, node.input[0])
        source = self._coded.get(chain.root)
        if chain.product is not None:
            product = read_product(network, chain.product, self._coded[chain.product.input[0]])
            write = write_product_signs if quantiser.is_binary else write_product_codes
            self._show(node, write(writer, network, quantiser, chain, product, scale))
        elif source is not None and quantiser.is_binary and not is_scalar(network, chain.nodes):
            self._show(node, write_code_signs(writer, network, quantiser, chain, source, scale))
        elif operands := self._summands(chain):
            self._show(node, write_sum(writer, network, quantiser, chain, operands, scale))
        elif source is not None and (average := write_average(writer, network, quantiser, chain, source, scale)):
            self._show(node, average)
        else:
            self._show(node, self._write_pointwise(quantiser, scale))

    def _scale(self, quantiser: Quantiser) -> np.float32:
        place, scale = f"{self._network.name}: {label(quantiser.node)}", self._network.constants.get(quantiser.scale)
        if scale is None or scale.size != 1:
            found = "computed" if scale is None else f"of {scale.size} values"
            raise ModelError(
                f"{place}: the scale {quantiser.scale!r} must be one constant, not {found}; quantise activations per "
                "tensor"
            )
        check_scale(place, quantiser.scale, scale)
        if not quantiser.fits:
            raise ModelError(
                f"{place}: the quantised activation must have at most 8 bits, not the numbers {quantiser.least} to "
                f"{quantiser.greatest}; quantise it with bit_width=8"
            )
        zero_point = quantiser.zero_point - quantiser.shift
        if not -128 <= zero_point <= 127:
            least, greatest = (end + quantiser.shift for end in (-128, 127))
            raise ModelError(
                f"{place}: the zero point must be a number between {least} and {greatest}, not {quantiser.zero_point}; "
                "quantise again"
            )
        return np.float32(scale.item())

    def _summands(self, chain: Chain) -> tuple[Coded, Coded] | None:
        """Return the codes whose values a chain's root adds up, if it does."""
        node = self._network.producer.get(chain.root)
        if node is None or node.op_type != "Add" or any(name not in self._coded for name in node.input):
            return None
        first, second = (self._coded[name] for name in node.input)
        return first, second

    def _write_pointwise(self, quantiser: Quantiser, scale: np.float32) -> Coded:
        """Write a quantiser of a float tensor: a table after codes, elsewhere a node for the host."""
        writer, name = self._writer, quantiser.node.output[0]
        values = quantiser.node.input[0]
        # After codes ONNX Runtime might fuse QuantizeLinear with operators between, and round differently.
        if self._reads_codes(quantiser) or not quantiser.is_plain:
            values = writer.name(f"{name} in float")
            writer.keep(*quantiser.spell(values))
        zero_point = quantiser.zero_point - quantiser.shift
        codes = writer.quantise(values, writer.name(f"{name} codes"), scale, zero_point, quantiser.node.name)
        limits = quantiser.least - quantiser.shift, quantiser.greatest - quantiser.shift
        return Coded(codes, scale, zero_point, *limits, is_binary=quantiser.is_binary)

    def _reads_codes(self, quantiser: Quantiser) -> bool:
        """Return whether a quantiser depends on codes.

        Raises
        ------
        ModelError
            If there is a product between them.
        """
        network, frontier = self._network, [quantiser.node.input[0]]
        seen: set[str] = set()
        products: list[NodeProto] = []
        while frontier:
            name = frontier.pop()
            node = network.producer.get(name)
            if name in seen or name in self._coded or node is None:
                seen.add(name)
                continue
            seen.add(name)
            products += [node] if node.op_type in PRODUCTS else []
            frontier += network.dynamic_inputs(node)
        if products and seen & self._coded.keys():
            node = products[-1]
            raise ModelError(
                f"{network.name}: {label(node)} must multiply quantised activations with constant weights, and its "
                f"results must be quantised before others are added, which they are not up to {label(quantiser.node)}; "
                "put QuantIdentity between"
            )
        return bool(seen & self._coded.keys())
