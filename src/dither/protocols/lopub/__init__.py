"""LoPub (Ren et al., IEEE TIFS 2018)."""
