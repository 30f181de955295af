"""The fields of FPC."""

from ...fields import place_fields

FIELDS = place_fields(
    ("stages", 4, "The stages of pairs nearer than `2 ** stages` work; the others pass values on."),
    ("channels", 9, "Codes of a window; what is read after them counts as zero."),
    ("input_zero_point", -8, "Subtracted from every code."),
    ("input_shift", 3, "Bits by which the differences are shifted to the left."),
    ("halves", 9, "The stages that divide by two, a bit each, the first stage's lowest."),
    ("own_weight", 8, "First word of the columns of weights that the weight memory has not."),
    ("direct", 1, "1: results are shifted, all lanes at a time; parameters are biases of 16 bits."),
    ("shift", 3, "Bits by which direct results are shifted to the right."),
    ("skips", 4, "The skips of the configuration that add, a bit each, the first one's lowest."),
)
