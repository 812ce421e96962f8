"""Optimizers of the book: Muon and what goes before its polar step, writes of hashed tables, groups from a model."""
