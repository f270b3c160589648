"""The mixture of products that the default method fits to all noisy marginals at once."""
