"""The version of tilec, alone in a module so that every room can import it without the package's front door."""

__version__ = "0.1.0"
