"""The former name of `tpuherd_host.train.wandb_agent`, for job files that run it."""

import sys

from tpuherd_host.train.wandb_agent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
