"""The fields of MULTIPLY."""

from ...fields import place_fields

FIELDS = place_fields(
    ("first_zero_point", -8, "What the codes of the first step's words lose."),
    ("second_zero_point", -8, "What the codes of the second step's words lose."),
)
