"""Installs an earlier commit of this repository, whose programs then run beside today's."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install_commit(commit: str, folder: Path) -> Path | None:
    """Make an environment with the commit's files in its folder `tree`; return its `herd`.

    It uses the libraries of our own environment. None if this clone does not have the commit.
    """
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
    if archive.returncode:
        return None
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "tree.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    program = folder / "bin" / "herd"
    program.write_text(
        f"#!{folder}/bin/python\nimport sys\nfrom tpuherd.launcher import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return program
