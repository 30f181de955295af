"""The fields of DEPTHWISE."""

from ...fields import place_fields

FIELDS = place_fields(
    ("rows", 5, "Weight words of a tile, and steps by which each column's words follow those of the one before."),
)
