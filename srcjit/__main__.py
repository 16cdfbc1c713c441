"""`python -m srcjit` is the command `srcjit`."""

from srcjit.cli import main

if __name__ == "__main__":
    main(prog_name="srcjit")
