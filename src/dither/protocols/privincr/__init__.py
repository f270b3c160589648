"""PrivIncr (Liu et al., EDBT 2023) and its variant without rounds."""
