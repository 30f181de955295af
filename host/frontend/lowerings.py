"""The lowerings of each kind of fragment to layers."""

from __future__ import annotations

from ..graph import (
    Add,
    Arrange,
    AveragePool,
    BinaryConvolution,
    Concat,
    Convolution,
    ElementwiseMaximum,
    ElementwiseProduct,
    FastPointwiseConvolution,
    MatrixProduct,
    Pad,
    Pointwise,
    Rearrange,
    Slice,
)
from ..model.functions import binary_function, fpc_function
from ..model.model_graph import INTEGER_PRODUCTS
from .build import Build
from .classify import is_layout
from .elements import add_arrangement, follow_layout
from .fragments import (
    ADDITION,
    AVERAGE,
    CHOICE,
    CONCAT,
    EXTREMES,
    LAYOUT,
    MULTIPLICATION,
    NORMALISATION,
    PAD,
    POINTWISE,
    SLICE,
    SUBTRACTION,
    TRANSPOSED,
    Fragment,
    Kind,
)
from .functions.binary_body import BinaryBody
from .functions.fpc_body import FastPointwiseBody
from .integer_products import check_weights
from .lowering.averaging import lower_average
from .lowering.copies import lower_concat, lower_pad, lower_slice
from .lowering.float_products import (
    CONVOLUTIONS,
    MATRICES,
    lower_float_product,
    lower_of_channels,
    lower_transposed,
    read_float_product,
)
from .lowering.functions import lower_binary, lower_fast_pointwise
from .lowering.lowering import OperatorLowering, Runs, refuses
from .lowering.pairs import lower_addition, lower_extreme, lower_multiplication, lower_subtraction
from .lowering.products import PRODUCTS_OF_TWO, check_linear, check_one_type, lower_linear, lower_matrix_product
from .lowering.tables import lower_combination, lower_region, table_or
from .source import LayerBody

# Lower functions of the model that are layers, by the kind of their body.

FUNCTIONS: dict[type[LayerBody], OperatorLowering] = {
    FastPointwiseBody: OperatorLowering(
        lower_fast_pointwise,
        (fpc_function.NAME,),
        Runs.LAYER,
        (FastPointwiseConvolution,),
        title="fast pointwise convolution",
    ),
    BinaryBody: OperatorLowering(
        lower_binary, (binary_function.NAME,), Runs.LAYER, (BinaryConvolution,), title="binary convolution"
    ),
}


def lower_function(build: Build, fragment: Fragment) -> None:
    """Add the layers of a function.

    Raises
    ------
    ModelError, UnsupportedError
        If its input does not have the layout that it needs, or its bytes are not ONNX Runtime's.
    """
    FUNCTIONS[type(build.source.function(fragment.main))].lower(build, fragment)


@refuses("indices are no constants")
def lower_layout(build: Build, fragment: Fragment) -> None:
    """Record the places to which layout operators, and selections by constant indices, have moved elements."""
    place = build.places[fragment.inputs[0]]
    for node in fragment.nodes:
        if is_layout(build.source, node):
            place = follow_layout(build, node, place)
    build.add_view(fragment.outputs[0], place)


_FUNCTION_NAMES = tuple(name for one in FUNCTIONS.values() for name in one.operators)
_FUNCTION_LAYERS = tuple(layer for one in FUNCTIONS.values() for layer in one.layers)

LOWERINGS: dict[Kind, OperatorLowering] = {
    Kind.LINEAR: OperatorLowering(
        lower_linear,
        (*INTEGER_PRODUCTS, *CONVOLUTIONS, *MATRICES),
        Runs.LAYER,
        (Convolution,),
        (check_weights, check_linear, check_one_type),
    ),
    Kind.FLOAT_LINEAR: OperatorLowering(
        lower_float_product, (*CONVOLUTIONS, *MATRICES), Runs.LAYER, (Convolution,), (check_weights, read_float_product)
    ),
    Kind.MATRIX_PRODUCT: OperatorLowering(
        lower_matrix_product, PRODUCTS_OF_TWO, Runs.LAYER, (MatrixProduct, Arrange), (add_arrangement,), moves=True
    ),
    Kind.TRANSPOSED: OperatorLowering(
        lower_transposed, TRANSPOSED, Runs.LAYER, (Convolution, Rearrange), (read_float_product,)
    ),
    Kind.FUNCTION: OperatorLowering(lower_function, _FUNCTION_NAMES, Runs.LAYER, _FUNCTION_LAYERS),
    Kind.REGION: OperatorLowering(lower_region, POINTWISE, Runs.TABLE, (Pointwise,), title="pointwise operators"),
    Kind.OF_CHANNELS: OperatorLowering(
        lower_of_channels, (*POINTWISE, NORMALISATION), Runs.LAYER, (Convolution, Arrange)
    ),
    Kind.ADDITION: OperatorLowering(lower_addition, ADDITION, Runs.LAYER, (Add,)),
    # Where both operands are functions of one tensor, all but a sum become tables of it.
    Kind.SUBTRACTION: OperatorLowering(table_or(lower_subtraction), SUBTRACTION, Runs.LAYER, (Add,)),
    Kind.MULTIPLICATION: OperatorLowering(
        table_or(lower_multiplication), MULTIPLICATION, Runs.LAYER, (ElementwiseProduct,)
    ),
    Kind.EXTREME: OperatorLowering(table_or(lower_extreme), EXTREMES, Runs.LAYER, (ElementwiseMaximum,)),
    Kind.AVERAGE: OperatorLowering(lower_average, AVERAGE, Runs.LAYER, (AveragePool,)),
    Kind.CONCAT: OperatorLowering(lower_concat, CONCAT, Runs.COPY, (Concat, Arrange), (add_arrangement,), moves=True),
    Kind.SLICE: OperatorLowering(lower_slice, SLICE, Runs.COPY, (Slice, Arrange), (add_arrangement,), moves=True),
    Kind.PAD: OperatorLowering(lower_pad, PAD, Runs.COPY, (Pad, Arrange), (add_arrangement,), moves=True),
    Kind.COMBINATION: OperatorLowering(lower_combination, POINTWISE, Runs.TABLE, (Pointwise,)),
    Kind.LAYOUT: OperatorLowering(
        lower_layout, (*LAYOUT, *CHOICE), Runs.IN_PLACE, (Arrange, Slice), (add_arrangement,), moves=True
    ),
}
