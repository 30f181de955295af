"""One inference on several cores: the parts of each layer that they compute, and the barriers between them."""
