"""`herd bug-report`: packs what a maintainer needs to find a bug, without secrets."""
