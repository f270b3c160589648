"""`python -m dither` is the command `dither`."""

from dither.cli import main

if __name__ == "__main__":
    main()
