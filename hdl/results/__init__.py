"""The path from an engine's results to bytes in the feature memory: queue, epilogue, write-back."""
