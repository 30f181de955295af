"""From layers to operations: which commands compute what."""
