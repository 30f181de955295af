"""The regression: tests in folders of the names that the project has."""
