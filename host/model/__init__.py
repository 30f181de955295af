"""ONNX models as they are: their files, tensors and random numbers, and what ONNX Runtime computes of them."""
