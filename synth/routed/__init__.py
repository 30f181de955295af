"""What is done after nextpnr has placed and routed a design."""
