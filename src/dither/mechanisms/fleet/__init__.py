"""Many simulated people at once, and support counts of packed reports: the NumPy and Numba side of the mechanisms.

Every function follows the law that the scalar mechanism states; p, q and the thresholds are read from it, never computed here.
"""
