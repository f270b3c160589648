"""Benchmarks' harness, comparison with other libraries, and contract suites for plug-ins."""
