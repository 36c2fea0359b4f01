"""Python environments of jobs on a host: installed once, then passed on as snapshots."""
