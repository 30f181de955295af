"""Networks and data for demonstrations, and the scripts that made them."""
