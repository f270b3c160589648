"""10. How far off the figures may be: replicates and their intervals, held-out error, and what liars can do."""
