"""`herd check`: what is wrong on this machine, in the cloud and on hosts, and how to fix it."""
