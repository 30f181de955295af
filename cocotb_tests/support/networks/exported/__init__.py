"""Networks as PyTorch exports them."""
