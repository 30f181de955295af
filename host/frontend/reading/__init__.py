"""The model as a source: read, checked, measured by ONNX Runtime, and parts cut out of it."""
