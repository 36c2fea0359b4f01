"""The agent's decisions: a pure function of a state and an event."""
