"""Runs `python -m tpuherd.front`, the former name of the launcher, until version 1.0."""

from tpuherd.launcher import main

if __name__ == "__main__":
    main()
