"""Environment, contexts and grants: which cloud, which project, which folders."""
