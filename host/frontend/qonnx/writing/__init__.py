"""The quantised network that computes what a QONNX network says."""
