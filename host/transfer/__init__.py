"""Stand-alone transfer tables, apart from any network: ONNX operators, their table, its ROM, its plot."""
