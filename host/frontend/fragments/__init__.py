"""The model cut at its quantised tensors, and what runs where."""
