"""`python -m edge_app`."""

from edge_app.cli import entry

if __name__ == "__main__":
    entry()
