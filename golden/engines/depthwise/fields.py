"""The fields of DEPTHWISE."""

from ...fields import place_fields
from ...isa import LOCAL_BITS

FIELDS = place_fields(
    ("rows", 5, "Weight words of a tile, and steps by which each column's words follow those of the one before."),
    ("further", 3, "Results of a window beside the first one: those of as many chains after the first."),
    ("destination_further", -LOCAL_BITS, "Destination pitch of a window's results, in bytes."),
)
