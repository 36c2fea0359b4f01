"""The engine: observes, plans, records and acts."""
