"""Building blocks of the units."""
