"""The fields of WINOGRAD."""

from ...fields import place_fields
from ...isa import LOCAL_BITS

FIELDS = place_fields(
    ("further", 1, "1: windows have both results; else the first one alone."),
    ("destination_further", -LOCAL_BITS, "Destination pitch of a window's results, in bytes."),
)
