"""Passes over the graph, before anything has a place: batches, orders of channels, separate borders."""
