"""Break the project in single places, and see whether a test notices: ``python -m tools.mutation``."""
