"""Writes what a benchmark measured as JSON, for the page of figures."""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_figures(path: Path, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows with the machine and the command line that gave them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    content = {"title": title, "command": " ".join(sys.argv), "machine": machine}
    path.write_text(json.dumps({**content, "rows": list(rows)}, indent=2) + "\n")
