"""From one core to several: which of them computes what."""
