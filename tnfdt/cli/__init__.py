"""The command line `tnfdt`."""

from tnfdt.cli.parser import main

__all__ = ["main"]
