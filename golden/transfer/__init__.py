"""Transfer functions as tables, and the quantisation schemes around them."""
