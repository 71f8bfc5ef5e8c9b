"""Gradients of intermediate values: by name, by call in forward order, and by example."""
