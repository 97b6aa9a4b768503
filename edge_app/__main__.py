"""`python -m edge_app`."""

from edge_app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
