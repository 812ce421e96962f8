"""Annotated corpora: Python's standard library, treebanks, and a static embedding of either; arrays out."""
