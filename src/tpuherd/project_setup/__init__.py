"""Makes what a Google Cloud project lacks for TPUs, and undoes it: APIs, roles, a rule, a key."""
