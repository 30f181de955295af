"""Integer arithmetic that gives the codes which a QONNX network wants."""
