"""Export of a trained model to an ONNX file, and a check that the file computes the same."""
