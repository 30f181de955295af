"""The fields of ADD."""

from ...fields import place_fields

FIELDS = place_fields(("add_table", 4, "The pair of Add tables."))
