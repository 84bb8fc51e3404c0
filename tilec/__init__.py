"""tilec: reads a tile kernel written in Python, never runs it, and writes one plain CUDA file."""

__version__ = "0.1.0"
