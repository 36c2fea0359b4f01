"""The judgement and what else is pure: no network, no files, no clock."""
