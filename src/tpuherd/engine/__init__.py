"""The engine: looks, asks the judgement what to do, does it, and remembers."""
