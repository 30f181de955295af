"""ONNX models: their files, their tensors, and their execution in ONNX Runtime."""
