"""The house method: one mixture of products fitted to all noisy pair marginals at once."""
