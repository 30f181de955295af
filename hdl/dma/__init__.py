"""The units that move data between external and local memories."""
