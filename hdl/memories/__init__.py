"""Feature memory and weight memory."""
