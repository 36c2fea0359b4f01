"""A package so small that installing it needs no network and no time."""

import zipfile
from pathlib import Path


def write_wheel(folder: Path, version: str = "1.0") -> None:
    """Write the wheel of `tiny`, which has a module and a program."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": f"version = {version!r}\n\n\ndef main():\n    print('tiny', version)\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    }
    rows = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{about}/RECORD": rows}.items():
            wheel.writestr(name, text)


REQUIREMENTS = "--no-index\n--find-links wheels\ntiny\n"
