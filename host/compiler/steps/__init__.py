"""Windows as words of the feature memory, and the constants and fields that go with them."""
