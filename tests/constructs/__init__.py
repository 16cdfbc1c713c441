"""One program for each construct of Python; `docs/constructs.md` is the table of them."""
