"""Lower operators on two activations: each is compared with ONNX Runtime on every pair of codes."""
