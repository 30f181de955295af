"""The lowerings: how each kind of fragment becomes layers."""

from __future__ import annotations

from ..graph import (
    Add,
    Arrange,
    AveragePool,
    Concat,
    Convolution,
    MatrixProduct,
    Maximum,
    Multiply,
    Pad,
    Pointwise,
    Rearrange,
    Slice,
)
from .building.build import Build
from .building.elements import add_arrangement
from .building.trunk import follow_layout
from .floats.float_lowering import lower_float_product
from .floats.float_operands import MATRICES
from .floats.float_sums import CONVOLUTIONS, read_float_product
from .floats.of_channels import lower_of_channels
from .floats.transposed import lower_transposed
from .fragments.float_products import check_weights
from .fragments.fragments import (
    ADDITION,
    AVERAGE,
    CHOICE,
    CONCAT,
    EXTREMES,
    INTEGER_PRODUCTS,
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
from .fragments.lowering import Lowering, Runs, refuses
from .fragments.moves import is_layout
from .lowering.averaging import lower_average
from .lowering.channels import lower_concat, lower_slice
from .lowering.combination import lower_combination, table_or
from .lowering.function_layers import FUNCTIONS, lower_function
from .lowering.linear import check_linear, check_one_type, lower_linear
from .lowering.matrix_product import PRODUCTS_OF_TWO, lower_matrix_product
from .lowering.padding import lower_pad
from .lowering.pairs.addition import lower_addition
from .lowering.pairs.extremes import lower_extreme
from .lowering.pairs.multiplication import lower_multiplication
from .lowering.pairs.subtraction import lower_subtraction
from .lowering.region import lower_region


@refuses("indices are no constants")
def lower_layout(build: Build, fragment: Fragment) -> None:
    """Note where the elements are that layout operators, and choices by constant indices, have moved."""
    place = build.places[fragment.inputs[0]]
    for node in fragment.nodes:
        if is_layout(build.source, node):
            place = follow_layout(build, node, place)
    build.add_view(fragment.outputs[0], place)


_FUNCTION_NAMES = tuple(name for one in FUNCTIONS.values() for name in one.operators)
_FUNCTION_LAYERS = tuple(layer for one in FUNCTIONS.values() for layer in one.layers)

LOWERINGS: dict[Kind, Lowering] = {
    Kind.LINEAR: Lowering(
        lower_linear,
        (*INTEGER_PRODUCTS, *CONVOLUTIONS, *MATRICES),
        Runs.LAYER,
        (Convolution,),
        (check_weights, check_linear, check_one_type),
    ),
    Kind.FLOAT_LINEAR: Lowering(
        lower_float_product, (*CONVOLUTIONS, *MATRICES), Runs.LAYER, (Convolution,), (check_weights, read_float_product)
    ),
    Kind.MATRIX_PRODUCT: Lowering(
        lower_matrix_product, PRODUCTS_OF_TWO, Runs.LAYER, (MatrixProduct, Arrange), (add_arrangement,), moves=True
    ),
    Kind.TRANSPOSED: Lowering(
        lower_transposed, TRANSPOSED, Runs.LAYER, (Convolution, Rearrange), (read_float_product,)
    ),
    Kind.FUNCTION: Lowering(lower_function, _FUNCTION_NAMES, Runs.LAYER, _FUNCTION_LAYERS),
    Kind.REGION: Lowering(lower_region, POINTWISE, Runs.TABLE, (Pointwise,), title="pointwise operators"),
    Kind.OF_CHANNELS: Lowering(lower_of_channels, (*POINTWISE, NORMALISATION), Runs.LAYER, (Convolution, Arrange)),
    Kind.ADDITION: Lowering(lower_addition, ADDITION, Runs.LAYER, (Add,)),
    # Where both operands are functions of one tensor, all but a sum are tables of that.
    Kind.SUBTRACTION: Lowering(table_or(lower_subtraction), SUBTRACTION, Runs.LAYER, (Add,)),
    Kind.MULTIPLICATION: Lowering(table_or(lower_multiplication), MULTIPLICATION, Runs.LAYER, (Multiply,)),
    Kind.EXTREME: Lowering(table_or(lower_extreme), EXTREMES, Runs.LAYER, (Maximum,)),
    Kind.AVERAGE: Lowering(lower_average, AVERAGE, Runs.LAYER, (AveragePool,)),
    Kind.CONCAT: Lowering(lower_concat, CONCAT, Runs.COPY, (Concat, Arrange), (add_arrangement,), moves=True),
    Kind.SLICE: Lowering(lower_slice, SLICE, Runs.COPY, (Slice, Arrange), (add_arrangement,), moves=True),
    Kind.PAD: Lowering(lower_pad, PAD, Runs.COPY, (Pad, Arrange), (add_arrangement,), moves=True),
    Kind.COMBINATION: Lowering(lower_combination, POINTWISE, Runs.TABLE, (Pointwise,)),
    Kind.LAYOUT: Lowering(
        lower_layout, (*LAYOUT, *CHOICE), Runs.IN_PLACE, (Arrange, Slice), (add_arrangement,), moves=True
    ),
}
