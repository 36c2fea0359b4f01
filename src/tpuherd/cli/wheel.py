"""Builds a wheel of the running package, to install it on another machine."""

import base64
import hashlib
import io
import zipfile
from functools import cache
from importlib.metadata import requires
from importlib.resources import files
from pathlib import Path

from tpuherd._version import __version__

PACKAGES = ("tpuherd", "tpuherd_host", "tpuherd_sim")
STAMP_LENGTH = 12
WHEEL = "Wheel-Version: 1.0\nGenerator: tpuherd\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRIES = "[console_scripts]\nherd = tpuherd.launcher:main\n"


@cache
def source_files() -> dict[str, bytes]:
    """Return every file by its name in the wheel."""
    found = {}
    for package in PACKAGES:
        root = Path(str(files(package)))
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found[f"{package}/{file.relative_to(root).as_posix()}"] = file.read_bytes()
    return found


@cache
def wheel_stamp() -> str:
    """Return an id that is equal for equal files."""
    told = hashlib.sha256()
    for name, content in source_files().items():
        told.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}-{told.hexdigest()[:STAMP_LENGTH]}"


def wheel_name() -> str:
    return f"tpuherd-{__version__}-py3-none-any.whl"


def build_wheel() -> bytes:
    about = f"tpuherd-{__version__}.dist-info"
    wanted = [one for one in requires("tpuherd") or () if "extra ==" not in one]
    metadata = f"Metadata-Version: 2.1\nName: tpuherd\nVersion: {__version__}\n"
    metadata += "Requires-Python: >=3.11\n" + "".join(f"Requires-Dist: {one}\n" for one in wanted)
    content = {
        **source_files(),
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": WHEEL.encode(),
        f"{about}/entry_points.txt": ENTRIES.encode(),
    }
    record = "".join(
        f"{one},sha256={record_digest(text)},{len(text)}\n" for one, text in content.items()
    )
    content[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, text in content.items():
            archive.writestr(one, text)
    return whole.getvalue()


def record_digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
