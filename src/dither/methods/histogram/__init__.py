"""Histograms of one numeric attribute for many consumers: SHP, CHP, split, sampled and smart."""
