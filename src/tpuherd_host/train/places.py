"""The former name of `tpuherd_host.train.storage`, for scripts that import it."""

from tpuherd_host.train.storage import Bucket, Folder, Place, Unreachable, of_run, place

__all__ = ["Bucket", "Folder", "Place", "Unreachable", "of_run", "place"]
