"""Winograd's minimal filtering beside the array: what becomes of words, of weights, and of sums."""
