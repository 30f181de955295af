"""The arithmetic of layers in integers, with the bytes of ONNX Runtime."""
