"""The fast pointwise convolution: stages of a butterfly, their finish, and a component with multipliers of its own."""
