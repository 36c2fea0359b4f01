"""The state of a world: records, rules, errors. Pure."""
