"""Values become text and JSON: pure."""
