"""What people are told about their jobs: which events, when, and in which words; pure."""
