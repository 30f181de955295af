"""Programs, queues, registers, and the beginning and end of a run."""
