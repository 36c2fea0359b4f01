"""The nouns that planner, engine and views share; no I/O."""
