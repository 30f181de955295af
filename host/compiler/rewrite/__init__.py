"""Passes over the graph before the memory planner: batches, orders of channels, separable poolings."""
