"""``python -m gleak``: the command line."""

from gleak.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
