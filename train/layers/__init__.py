"""Layers to train."""
