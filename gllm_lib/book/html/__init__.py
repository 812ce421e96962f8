"""The built-in renderer: from the staged folder to pages that open from disk."""
