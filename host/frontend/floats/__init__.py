"""Products that ONNX Runtime computes in float, lowered where their bytes are those of integer sums."""
