"""The memory planner: allocation of tensors and constants, whole or in parts."""
