"""The world as values: records, rules, errors and its state. Pure."""
