"""Makes a virtual environment and installs a job's packages into it, with uv or with pip."""

import os
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence

from tpuherd_host.agent.environments.environment_folders import ROOT, TOOLS
from tpuherd_host.agent.environments.installer_output import UNFIT, explain_failure

LINES_KEPT = 200
PIP_WAIT_S = "15"
OWN_TOOLS = (".local/bin", ".cargo/bin", f"{ROOT}/{TOOLS}")  #: where uv may be, below the home
PROJECT, PROJECT_FILE = "uv.lock", "pyproject.toml"
#: Prints where Python keeps the wheel of pip for new environments.
WHEELS = """\
import os, sysconfig
from importlib.util import find_spec
found = find_spec("ensurepip")
own = found and os.path.join(os.path.dirname(found.origin), "_bundled")
for folder in (sysconfig.get_config_var("WHEEL_PKG_DIR"), own):
    if folder and os.path.isdir(folder):
        print(folder)
"""
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


class InstallationFailed(Exception):
    """The environment can't be made; the exit status says whether another try can help."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status = status


class Recipe(NamedTuple):
    """What to install."""

    key: str
    python: str = ""  #: 3.11, or 3.11.7; "": the host's
    requirements: str = ""  #: a file of the code, or uv.lock
    directory: str = "."  #: of the code
    bucket: str = ""  #: gs://…, where a copy is kept
    job: str = ""  #: whose copy it is
    digest: str = ""  #: of what a host of the job installed: of a copy that may be used

    @property
    def is_project(self) -> bool:
        return os.path.basename(self.requirements) == PROJECT

    @property
    def what(self) -> str:
        return self.requirements or f"Python {self.python}"


def find_uv(home: str, path: str) -> Optional[str]:
    """Return the path of this host's uv."""
    own = [os.path.join(home, folder) for folder in OWN_TOOLS]
    return shutil.which("uv", path=":".join([path, *own]))


def fetch_uv(root: Path) -> Optional[str]:
    """Install uv with the host's pip, beside the environments; None if that is not possible."""
    aside, goal = root / f"{TOOLS}.new", root / TOOLS
    shutil.rmtree(str(aside), ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wait = ["--retries", "1", "--timeout", PIP_WAIT_S, "--target", str(aside), "uv"]
    try:
        if run_tool([*pip, *wait]).status == 0:
            goal.mkdir(parents=True, exist_ok=True)
            (aside / "bin" / "uv").replace(goal / "uv")
            return str(goal / "uv")
    except OSError:
        pass
    finally:
        shutil.rmtree(str(aside), ignore_errors=True)
    return None


class ToolRun(NamedTuple):
    status: int
    lines: List[str]


def run_tool(
    words: Sequence[str], directory: str = ".", more: Optional[Mapping[str, str]] = None
) -> ToolRun:
    """Run a program, show its output, and return its last lines."""
    lines: Deque[str] = deque(maxlen=LINES_KEPT)
    with subprocess.Popen(
        list(words),
        cwd=directory,
        env={**os.environ, **(more or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.rstrip("\n"))
    return ToolRun(process.returncode, list(lines))


def require_success(run: ToolRun, what: str) -> None:
    if run.status:
        raise InstallationFailed(*explain_failure(what, run.lines))


# ---- uv ------------------------------------------------------------------------------------------


def install_with_uv(uv: str, recipe: Recipe, tree: Path, pythons: Path) -> None:
    """Make the environment; a Python that the host lacks is downloaded into `pythons`."""
    more: Dict[str, str] = {
        "UV_PYTHON_INSTALL_DIR": str(pythons),
        "UV_PYTHON_PREFERENCE": "system",
        "UV_PROJECT_ENVIRONMENT": str(tree),
        "UV_NO_PROGRESS": "1",
        "UV_VENV_CLEAR": "1",
        "NO_COLOR": "1",
    }
    code = recipe.directory
    if recipe.is_project:
        code = os.path.join(code, os.path.dirname(recipe.requirements))
    asked = ["--python", recipe.python] if recipe.python else []
    if not recipe.python and not recipe.is_project:
        asked = ["--python", sys.executable]
    own = [] if recipe.is_project else ["--no-project"]
    made = run_tool([uv, "venv", "--relocatable", *own, *asked, str(tree)], code, more)
    own_version = ".".join(map(str, sys.version_info[:3]))
    wanted = f"Python {recipe.python}" if recipe.python else f"a Python for {recipe.what}"
    require_success(made, f"{wanted} (this host has {own_version})")
    python = str(tree / "bin" / "python")
    if recipe.is_project:
        words = [uv, "sync", "--frozen", "--no-dev", "--no-install-workspace", "--no-editable"]
        require_success(run_tool([*words, "--python", python], code, more), recipe.what)
    elif recipe.requirements:
        words = [uv, "pip", "install", "--python", python, "-r", recipe.requirements]
        require_success(run_tool(words, code, more), recipe.what)
    if not (tree / "bin" / "pip").exists():
        add_pip(uv, python, more)


def add_pip(uv: str, python: str, more: Mapping[str, str]) -> None:
    """Install pip for the user's own commands: Python's copy, else from an index; it may fail."""
    words = [uv, "pip", "install", "--python", python]
    folders = [folder for folder in run_tool([python, "-c", WHEELS]).lines if folder]
    links = [word for folder in folders for word in ("--find-links", folder)]
    if not folders or run_tool([*words, "--no-index", *links, "pip"], more=more).status:
        run_tool([*words, "pip"], more=more)


# ---- pip -----------------------------------------------------------------------------------------


def install_with_pip(recipe: Recipe, tree: Path) -> None:
    """Make the environment with the standard library and pip."""
    if recipe.is_project or os.path.basename(recipe.requirements) == PROJECT_FILE:
        sentence = f"{recipe.what} needs uv, and this host has none: pip could not install it"
        raise InstallationFailed(sentence, UNFIT)
    made = run_tool([find_python(recipe.python), "-m", "venv", str(tree)])
    require_success(made, "venv")
    if recipe.requirements:
        python = str(tree / "bin" / "python")
        words = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        done = run_tool([*words, "-r", recipe.requirements], recipe.directory)
        require_success(done, recipe.what)


def find_python(version: str) -> str:
    """Return an interpreter of this version."""
    own = ".".join(map(str, sys.version_info[:3]))
    if not version or f"{own}.".startswith(f"{version}."):
        return sys.executable
    name = "python" + ".".join(version.split(".")[:2])
    found = shutil.which(name)
    if found and f"{python_version(found)}.".startswith(f"{version}."):
        return found
    raise InstallationFailed(
        f"this host has Python {own} and no Python {version}, and no uv that could fetch one", UNFIT
    )


def python_version(python: str) -> str:
    """Return 3.11.2, or "" if the interpreter does not run."""
    try:
        done = subprocess.run(
            [python, "-c", VERSION],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
