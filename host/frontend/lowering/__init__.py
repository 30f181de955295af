"""Lowering of fragments to layers."""
