"""Layers that ONNX does not have, as functions whose bodies are standard operators."""
