"""Programs, queues, registers, and how a run begins and ends."""
