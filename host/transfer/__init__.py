"""Transfer tables of their own, apart from any network: ONNX operators, their table, its ROM, its plot."""
