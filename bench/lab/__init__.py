"""The policy laboratory: our engine, two other tools and the best possible, on capacity traces."""
