"""From the results of engines to bytes in the feature memory: queued, finished, written back."""
