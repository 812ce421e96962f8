"""What representations and targets say about a basis: probes, profiles with their nulls, and level bases."""
