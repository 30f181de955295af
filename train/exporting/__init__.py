"""From a trained model to an ONNX file, and the proof that it computes the same."""
