"""Area and timing on open tools."""
