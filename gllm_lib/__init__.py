"""The small library that the chapters of *What a Training Run Sees* call."""

__version__ = "0.1.0"
