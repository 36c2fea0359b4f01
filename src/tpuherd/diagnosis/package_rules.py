"""Rules for packages that are missing, too old, or do not fit each other."""

from tpuherd.diagnosis.rule import Rule, RuleClass

VERSION = RuleClass.VERSION
REINSTALL = "install jax[tpu] again on every host, so that pip chooses the libtpu that fits"
SETUP = (
    "put it into `requirements:` or `setup:` of the job; `herd exec NODE -- pip list` compares"
    " the hosts"
)

VERSION_RULES = (
    Rule(
        id="libtpu-missing",
        kind=VERSION,
        pattern=r"Failed to open \S*libtpu",
        words=("Failed to open ",),
        cause="libtpu is not installed in this Python environment, or TPU_LIBRARY_PATH is wrong",
        fix="pip install 'jax[tpu]' in the same environment on every host",
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="libtpu-broken",
        kind=VERSION,
        pattern=r"libtpu\S*: (?:file too short|invalid ELF header)",
        words=("file too short", "invalid ELF header"),
        cause="the file of libtpu is not whole: an installation was cut short",
        fix=f"free some disk space if it is full; {REINSTALL}",
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="dns-uri",
        kind=VERSION,
        pattern=r"no server name supplied in dns URI",
        words=("no server name supplied",),
        cause="an error of JAX 0.3.5 and its libtpu",
        fix="install a newer JAX",
        source="jax#10218",
        evidence="report",
    ),
    Rule(
        id="pjrt-mismatch",
        kind=VERSION,
        pattern=r"Mismatched PJRT plugin PJRT API version \((?P<plugin>[\d.]+)\) and framework PJRT"
        r" API version (?P<framework>[\d.]+)",
        words=("Mismatched PJRT plugin",),
        cause="libtpu (PJRT {plugin}) and the framework ({framework}) do not fit, or one process"
        " loads both JAX and PyTorch",
        fix=f"{REINSTALL}; one framework a process",
        source="pytorch/xla#6949, jax#22416, jax#20148, flax#4122",
        evidence="report",
    ),
    Rule(
        id="pjrt-args",
        kind=VERSION,
        pattern=r"Unexpected PJRT_\w+_Args size: expected (?P<expected>\d+), got (?P<got>\d+)",
        words=("Unexpected PJRT_",),
        cause="libtpu is newer than the framework, as after `pip install -U libtpu`",
        fix=REINSTALL,
        source="weathernext#185, Kaggle/docker-python#1499",
        evidence="report",
    ),
    Rule(
        id="mosaic",
        kind=VERSION,
        pattern=r"Unsupported Mosaic version",
        words=("Unsupported Mosaic version",),
        cause="jaxlib is newer than libtpu, which can't compile its Pallas kernels",
        fix=REINSTALL,
        source="pytorch/xla#7932",
        evidence="report",
    ),
    Rule(
        id="no-module",
        kind=VERSION,
        pattern=r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
        words=("ModuleNotFoundError",),
        cause="the Python of this host has no module {module}: it was not installed here, or"
        " another Python runs than the one it was installed for",
        fix=SETUP,
        source="Python",
        evidence="measured",
    ),
    Rule(
        id="import-error",
        kind=VERSION,
        pattern=r"ImportError: (?:cannot import name '(?P<name>\w+)'|\S+: cannot open shared object"
        r"|.*undefined symbol)",
        words=("ImportError: ",),
        cause="a package has another version than the program expects, or a library of the system"
        " is missing on this host",
        fix="compare `pip list` of the hosts with that of the machine where it works, and pin the"
        " versions in `requirements:`",
        source="Python",
        evidence="measured",
    ),
    Rule(
        id="tcmalloc-glibc",
        kind=VERSION,
        pattern=r"GLIBC(?:XX)?_[\d.]+'? not found \(required by \S*tcmalloc",
        words=("tcmalloc",),
        cause="LD_PRELOAD in /etc/environment of TPU images loads tcmalloc, which does not fit a"
        " program with libraries of its own (snap's gsutil, servers of editors)",
        fix="run that program with `env -u LD_PRELOAD`",
        source="Levanter's set-up script",
        evidence="report",
    ),
    Rule(
        id="glibc",
        kind=VERSION,
        pattern=r"version [`']GLIBC(?:XX)?_(?P<version>[\d.]+)' not found",
        words=("' not found",),
        generic=True,
        cause="a package needs a newer system (glibc {version}) than the image has",
        fix="choose a newer runtime, such as tpu-ubuntu2204-base",
        source="glibc",
        evidence="assumed",
    ),
    Rule(
        id="pip-no-match",
        kind=VERSION,
        pattern=r"Could not find a version that satisfies the requirement (?P<wanted>\S+)",
        words=("Could not find a version that satisfies",),
        cause="pip finds no {wanted}: its name is wrong, or the Python of the image is too old",
        fix='set `python: "3.12"` in the job, which installs a newer Python on every host',
        source="pip",
        evidence="report",
    ),
    Rule(
        id="pip-managed",
        kind=VERSION,
        pattern=r"error: externally-managed-environment",
        words=("externally-managed-environment",),
        cause="the Python of newer images does not let pip install into it",
        fix="use `requirements:` of the job, or make a venv in `setup:`",
        source="PEP 668",
        evidence="assumed",
    ),
    Rule(
        id="python-old",
        kind=VERSION,
        pattern=r"requires a different Python|requires Python '?>=|^SyntaxError: invalid syntax"
        r"|TypeError: unsupported operand type\(s\) for \|: 'type'"
        r"|TypeError: 'type' object is not subscriptable",
        words=(
            "requires a different Python",
            "requires Python",
            "SyntaxError: invalid syntax",
            "unsupported operand type(s) for |: 'type'",
            "'type' object is not subscriptable",
        ),
        cause="the program is written for a newer Python than the image has, or has a typing error",
        fix='set `python: "3.12"` in the job; `herd run --dry-run` compares both',
        source="Python",
        evidence="assumed",
    ),
    Rule(
        id="native-crash",
        kind=VERSION,
        pattern=r"Segmentation fault|\*\*\* SIGSEGV|Illegal instruction",
        words=("Segmentation fault", "*** SIGSEGV", "Illegal instruction"),
        exits=(139, -11, 132, -4),
        generic=True,
        cause="native code crashed: packages that do not fit each other, or a fork after JAX began",
        fix=f"{REINSTALL}; start data workers before JAX, by spawn",
        source="jax#12456",
        evidence="report",
    ),
)
