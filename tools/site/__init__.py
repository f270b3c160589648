"""Prepares the documentation site: pages from outside docs/, notebooks, examples in docstrings."""
