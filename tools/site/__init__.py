"""The documentation site beside its generator: pages from outside docs/, notebooks, examples in docstrings."""
