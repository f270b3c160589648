"""Batches of reports at once, with NumPy and Numba: what a fleet, a simulation and a server need. A device never imports these."""
