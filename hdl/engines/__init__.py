"""The engines that compute windows, and what they have in common."""
