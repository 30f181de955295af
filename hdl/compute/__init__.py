"""The compute unit: from COMPUTE commands to bytes in the feature memory."""
