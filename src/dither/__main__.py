"""`python -m dither` is the command `dither`."""

from dither.cli import main

main()
