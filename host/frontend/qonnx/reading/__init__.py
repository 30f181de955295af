"""What a QONNX network says: its quantisers, products, and what stands between them."""
