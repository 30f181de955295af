"""What is done to the graph when all layers are there: tables fused, binary tensors packed."""
