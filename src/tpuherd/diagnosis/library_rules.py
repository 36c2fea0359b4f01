"""Rules for what surrounds JAX in a program: data loaders, checkpoints, trackers, Ray."""

from tpuherd.diagnosis.rule import Rule, RuleClass

VERSION, USER, DISK, INFO = RuleClass.VERSION, RuleClass.USER, RuleClass.DISK, RuleClass.INFO

LIBRARY_RULES = (
    Rule(
        id="numpy-old",
        kind=VERSION,
        pattern=r"module 'numpy\.dtypes' has no attribute 'StringDType'",
        words=("has no attribute 'StringDType'",),
        cause="another package has put an older numpy in the place of the one that JAX needs, as"
        " wandb[sweeps] does",
        fix="install 'numpy>=2' last, or that package in an environment of its own",
        source="wandb 0.31, jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="ray-default",
        kind=VERSION,
        pattern=r"require the ray\[default\] installation",
        words=("ray[default]",),
        cause="Ray's job commands are not in the plain package",
        fix="pip install 'ray[default]' on every host and on your machine, in one version",
        source="ray 2.60",
        evidence="measured",
    ),
    Rule(
        id="wandb-folder",
        kind=USER,
        pattern=r"module 'wandb' has no attribute",
        words=("module 'wandb' has no attribute",),
        cause="this Python has no package wandb, and imports the folder wandb/ that earlier runs"
        " left where the command runs",
        fix="install wandb in this environment; `wandb agent` starts the first python in PATH",
        source="wandb 0.31",
        evidence="measured",
    ),
    Rule(
        id="nodesplitter",
        kind=USER,
        pattern=r"you need to add an explicit nodesplitter",
        words=("explicit nodesplitter",),
        cause="webdataset does not know how to divide the shards among the hosts",
        fix="divide them by jax.process_index() yourself: its split_by_node reads RANK, which JAX"
        " does not set, and then every host reads everything",
        source="webdataset",
        evidence="measured",
    ),
    Rule(
        id="grain-sampler",
        kind=USER,
        pattern=r"Sampler in checkpoint does not match dataloader sampler",
        words=("Sampler in checkpoint does not match",),
        cause="the checkpoint of the data was made with another number of hosts, or another seed",
        fix="continue on as many hosts as before, or give up the position in the data",
        source="grain's DataLoader",
        evidence="measured",
    ),
    Rule(
        id="grain-hosts",
        kind=USER,
        pattern=r"process_\d+-of-(?P<hosts>\d+)\.json\S* does not exist",
        words=(" does not exist",),
        cause="the checkpoint of the data was made with another number of hosts than {hosts}",
        fix="continue on as many hosts as before, or give up the position in the data",
        source="grain's checkpoints with Orbax",
        evidence="source",
    ),
    Rule(
        id="checkpoint-exists",
        kind=USER,
        pattern=r"StepAlreadyExistsError",
        words=("StepAlreadyExistsError",),
        cause="a checkpoint of this step is there already, as after going back to an older one",
        fix="delete the newer, bad checkpoints before training on from an older one",
        source="orbax",
        evidence="measured",
    ),
    Rule(
        id="checkpoint-damaged",
        kind=DISK,
        pattern=r"Encountered error while reading array index"
        r"|Metadata at \"\S*\.zarray\" .*does not exist",
        words=("Encountered error while reading array", '.zarray"'),
        cause="a file of the checkpoint is missing or cut, though its step is listed",
        fix="delete this step and continue from the one before",
        source="orbax",
        evidence="measured",
    ),
    Rule(
        id="loader-noise",
        kind=INFO,
        pattern=r"can only test a child process",
        words=("can only test a child process",),
        cause="PyTorch's DataLoader prints this when it is cleaned up after another error",
        fix="look for the first error above it",
        source="torch",
        evidence="measured",
    ),
)
