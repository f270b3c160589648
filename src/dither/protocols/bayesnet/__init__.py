"""The refined Bayes network (Ju et al., Sensors 2020)."""
