"""What the passes hand on: the plan, and what it is made of."""
