"""Gradients of what happens inside a model: by module, by call, by example."""
