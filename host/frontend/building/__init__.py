"""The graph under construction, and the comparison of its layers with ONNX Runtime."""
