"""From layers to commands of both queues in order, with tokens."""
