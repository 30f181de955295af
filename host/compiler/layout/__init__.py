"""Where tensors lie in the memories, whole or in parts."""
