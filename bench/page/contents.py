"""What `make bench` runs, and what the page of benchmarks says about it, in this order."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One run: its file in bench/results, and the words behind bench/NAME.py."""

    result: str
    words: str = ""
    takes_peers: bool = False  #: from .venv-clients/fanout


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One benchmark, bench/NAME.py."""

    name: str
    heading: str
    text: str
    pieces: tuple[Piece, ...]
    plot: str = ""  #: of bench/page/plots.py
    sizes: str = "hosts"  #: what `at` of its rows counts


SECTIONS = (
    Section(
        name="policies", heading="Goodput against other tools", plot="goodput",
        text="The share of what an omniscient policy could have trained, on the same capacity. The"
        " engine is ours, as it is, in virtual time; the others are models of their programs, with"
        " [the same constants](../bench/lab/README.md).",
        pieces=(),  # it needs a folder of traces
    ),
    Section(
        name="recovery", heading="Recovery from a preemption", plot="recovery",
        text="charlm on four hosts with real JAX is preempted without notice. *After READY*: from"
        " READY on all hosts to the first new step, less an undisturbed start of the same script."
        " *Ours*: from the loss to the first new step, less the cloud's time and that start.",
        pieces=(Piece(result="recovery", words="--modes off,on"),),
    ),
    Section(
        name="environments", heading="Packages on nodes that have none of them",
        text="A job with JAX in its `requirements`, on two hosts whose images lack it, is preempted"
        " without notice: from the loss until the command runs on both hosts of the next node, less"
        " the cloud's time.",
        pieces=(Piece(result="environments", words="--rounds 3"),),
    ),
    Section(
        name="launchers", heading="The same program on TPU Care and on herd",
        text="A program written for TPU Care runs on TPU Care as published, with the real gcloud,"
        " and on herd with one changed import. Its node in the simulator is preempted; measured is"
        " the time until its `start_fn` has run on the next node. Levanter's launch scripts are not"
        " here: they install packages from the internet on each host, which simulated hosts need"
        " not have.",
        pieces=(Piece(result="launchers", words="--rounds 1"),),
    ),
    Section(
        name="exec", heading="Commands on all hosts", plot="fan-out",
        text="`true` on N hosts of a simulated pod. All tools use the same key exchange and cipher."
        " *Warm*: connections are open. *New connections*: our daemon and agents run, without a"
        " connection; the others connect anew; gcloud (alpha) has all hosts in one batch. *No"
        " daemon*: agents run. *No agents*: they are installed, too.",
        pieces=(
            Piece(result="exec", words="--hosts 1,8,32,64 --rounds 3 --kinds warm,connect",
                  takes_peers=True),
            Piece(result="exec.8-late", words="--hosts 8 --late --rounds 5", takes_peers=True),
            Piece(result="exec.cold", words="--hosts 1,8 --rounds 3 --kinds cold,bare"),
        ),
    ),
    Section(
        name="sync", heading="Code to all hosts", plot="sync",
        text="800 files to real sshd's, through an uplink of 20 Mbit/s and 30 ms, and without a"
        " limit. rsync runs for all hosts at once. An edited file travels whole; in the runs with"
        " 64 hosts, which are older, it traveled as differences.",
        pieces=(
            Piece(result="sync.8", words="--hosts 1,8 --times 3 --files 10000"),
            Piece(result="sync.64-thin", words='--hosts 64 --thin --times 1 --files ""'),
            Piece(result="sync.64-wide", words='--hosts 64 --wide --times 3 --files ""'),
        ),
    ),
    Section(
        name="trial_folders", heading="A trial's folder",
        text="A folder of 800 files of code and 1,790 that the setup made. The copy of what the"
        " setup made is taken once per node; before each further trial or item the folder is put"
        " back as it was. `cp -r` copies the whole folder on the same disk, which cannot clone.",
        pieces=(Piece(result="trial_folders", words="--rounds 15"),),
    ),
    Section(
        name="size", heading="One engine, 100 to 5,000 nodes", plot="engine",
        sizes="nodes",
        text="The real engine and its store, four agents per node, in virtual time.",
        pieces=(
            Piece(result="size.300", words="--nodes 100,300"),
            Piece(result="size.1000", words="--nodes 1000"),
            Piece(result="size.3000", words="--nodes 3000"),
            Piece(result="size.5000", words="--nodes 5000"),
            Piece(result="size.month", words='--nodes "" --days 30'),
        ),
    ),
    Section(
        name="hosts_1024", heading="One node of many hosts",
        text="A simulated pod whose hosts are real SSH servers on this machine.",
        pieces=(
            Piece(result="hosts_1024.ready", words="--hosts 1024 --parts ready"),
            Piece(result="hosts_1024.512", words="--hosts 512 --parts exec,sync"),
            Piece(result="hosts_1024.exec", words="--hosts 1024 --parts exec"),
            Piece(result="hosts_1024.job", words="--hosts 256 --parts job"),
        ),
    ),
    Section(
        name="engine", heading="Reactions of the engine", sizes="hosts or slots",
        text="In a world with real hosts: from a preemption until the cloud accepts the request for"
        " a replacement, and from a changed job until its command runs on all hosts.",
        pieces=(
            Piece(result="engine.react", words="--parts react,ramp"),
            Piece(result="engine.start-16", words="--parts start --hosts 16"),
        ),
    ),
    Section(
        name="logs", heading="Output of many hosts",
        text="Each host, a real sshd, writes as fast as it is read. *asyncssh alone* discards what"
        " it reads.",
        pieces=(Piece(result="logs", words="--hosts 32 --megabytes 4"),),
    ),
    Section(
        name="shared_store", heading="A lab on one PostgreSQL", sizes="kills",
        text="20 users with ten jobs each, the store in PostgreSQL and in SQLite by turns; a lost"
        " job is asked for again in the in-process simulator. *Fail-over*: two engines stand by on"
        " a real PostgreSQL and a world, and the leader is killed.",
        pieces=(Piece(result="shared_store", words="--rounds 3"),),
    ),
    Section(
        name="ray_start", heading="The start of Ray",
        text="A job with `cluster: ray` on four hosts, from the launch of its attempt, against"
        " `ray start` on the same kind of hosts by hand: until `ray.init` sees all four. The hosts"
        " share this machine's cores; where each has its own, both are faster.",
        pieces=(Piece(result="ray_start", words="--rounds 2"),),
    ),
    Section(
        name="training", heading="What a training script imports",
        text="`tpuherd_host.train` beside other libraries, in one process each.",
        pieces=(
            Piece(result="training.parts", words="--parts step,loader,save"),
            Piece(result="training.start", words="--parts start,notice --rounds 3"),
        ),
    ),
    Section(
        name="plan", heading="One plan",
        text="One call of the planner.", pieces=(Piece(result="plan"),),
    ),
    Section(
        name="start_up", heading="The start of a command",
        text="By somebody without jobs.", pieces=(Piece(result="start_up"),),
    ),
    Section(
        name="seeing", heading="Watching chips",
        text="The peer asks libtpu on every host for the same bytes, and parses nothing.",
        pieces=(Piece(result="seeing", words="--hosts 32 --rounds 5"),),
    ),
    Section(
        name="seeing_page", heading="The page of many nodes", sizes="nodes",
        text="`herd ui` over a store of 1,000 nodes of four hosts, with ten open pages and two"
        " events a second.",
        pieces=(Piece(result="seeing_page"),),
    ),
    Section(
        name="tcp_world", heading="The simulator over TCP", sizes="nodes",
        text="World and client have a core each.", pieces=(Piece(result="tcp_world"),),
    ),
    Section(
        name="virtual_world", heading="The simulator in virtual time", sizes="nodes",
        text="A world of 300 nodes, listed every ten seconds for a day.",
        pieces=(Piece(result="virtual_world"),),
    ),
    Section(
        name="hosts", heading="Simulated hosts",
        text="64 hosts without their services, isolated in each way that the machine offers.",
        pieces=(Piece(result="hosts"),),
    ),
)  # fmt: skip
