"""Rules for hosts that do not find each other, that differ, or that outlive another one."""

from tpuherd.diagnosis.rule import Rule, RuleClass

CLUSTER, PEER, DESYNC = RuleClass.CLUSTER, RuleClass.PEER, RuleClass.DESYNC
FIRST = "look for the host that ended first: its log has the cause"
TOGETHER = "start the command on all hosts at once, as `herd run` and `herd exec` do"

CLUSTER_RULES = (
    Rule(
        id="topology",
        kind=CLUSTER,
        pattern=r"Failed to get global TPU topology",
        words=("Failed to get global TPU topology",),
        cause="the command was started on some hosts only, the runtime is that of another"
        " generation, or chips are dead after maintenance",
        fix=f"{TOGETHER}; check the runtime version; else request another node",
        source="gemma_pytorch#25, pytorch/xla#7939, vllm#16243",
        evidence="report",
    ),
    Rule(
        id="init-slow",
        kind=CLUSTER,
        pattern=r"TPU backend initialization is taking more than (?P<seconds>[\d.]+) seconds",
        words=("TPU backend initialization is taking",),
        hint=True,
        cause="other hosts are missing after {seconds} seconds: not started, still installing, or"
        " ended while importing",
        fix=f"compare the processes of all hosts (`herd chips NODE`); {TOGETHER}",
        source="jax/_src/xla_bridge.py; jax#19971, jax#12456, jax#22436",
        evidence="source, report",
    ),
    Rule(
        id="slice-builder",
        kind=CLUSTER,
        pattern=r"Failed to connect to (?P<peer>\S+:8471)",
        words=(":8471",),
        cause="the runtime of another host ({peer}) does not answer: not started, dead, or a"
        " firewall is between the hosts",
        fix=f"{TOGETHER}; allow ports 8470 to 8490 within the network",
        source="libtpu: deepsea_slice_builder_worker_port",
        evidence="report",
    ),
    Rule(
        id="worker-addrs",
        kind=CLUSTER,
        pattern=r"Expected (?P<wanted>\d+) worker addresses, got (?P<got>\d+)",
        words=("worker addresses, got",),
        cause="TPU_WORKER_HOSTNAMES or TPU_PROCESS_ADDRESSES name {got} hosts, the node has"
        " {wanted}: copied from another set-up",
        fix="unset these variables, or name all hosts in them",
        source="Lightning#20244",
        evidence="report",
    ),
    Rule(
        id="mds-undetermined",
        kind=CLUSTER,
        pattern=r"could not determine TPU (?:accelerator type|worker hostnames)",
        words=("could not determine TPU",),
        hint=True,
        cause="the metadata server did not say what the node is, or TPU_SKIP_MDS_QUERY is set"
        " without the variables that replace it",
        fix="on a TPU VM: unset TPU_SKIP_MDS_QUERY and ask the metadata server; elsewhere harmless",
        source="libtpu 0.0.51; jax#17495",
        evidence="measured, report",
    ),
    Rule(
        id="mds-fetch",
        kind=CLUSTER,
        pattern=r"Failed to fetch URL (?:after|on try) \d+",
        words=("Failed to fetch URL",),
        hint=True,
        cause="the metadata server refuses: 403 means a proxy or a missing header, 404 that the"
        " attribute does not exist",
        fix="check that metadata.google.internal is 169.254.169.254 and that no http_proxy is set;"
        " off Cloud TPU set TPU_SKIP_MDS_QUERY=1",
        source="libtpu 0.0.51; jax#17495",
        evidence="measured, report",
    ),
    Rule(
        id="mds-dns",
        kind=CLUSTER,
        pattern=r"Failed to resolve 'metadata\.google\.internal'"
        r"|host='metadata\.google\.internal'.*(?:Max retries|Name or service)",
        words=("metadata.google.internal",),
        cause="there is no metadata server, as in a container with a network of its own, yet JAX"
        " asks it who the hosts are",
        fix="`docker run --net=host`; off Cloud TPU set MEGASCALE_NUM_SLICES=1,"
        " MEGASCALE_SLICE_ID=0 and MEGASCALE_COORDINATOR_ADDRESS",
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="coord-dns",
        kind=CLUSTER,
        pattern=r"Failed to recognize coordinator address (?P<name>\S+)",
        words=("Failed to recognize coordinator address",),
        cause="the name of worker 0 ({name}) does not resolve on this host",
        fix="check the DNS of the network, or put the name into /etc/hosts",
        source="jax/_src/clusters/cloud_tpu_cluster.py",
        evidence="source",
    ),
    Rule(
        id="gloo-host",
        kind=CLUSTER,
        pattern=r"gloo/transport/tcp/device\.cc.*-2 vs 0",
        words=("gloo/transport/tcp/device.cc",),
        secondary=True,
        cause="the host's own name does not resolve (only programs on several CPUs need it)",
        fix="put the host's name into its /etc/hosts",
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="task-restarted",
        kind=CLUSTER,
        pattern=r"unexpectedly tried to connect with a different incarnation",
        words=("with a different incarnation",),
        secondary=True,
        cause="a process joined the coordinator twice: it was started again while the others ran"
        " on, or a process of a run before still lives",
        fix=f"`herd clean NODE`, then {TOGETHER}",
        source="openxla/xla coordination_service.cc",
        evidence="assumed",
    ),
    Rule(
        id="coord-register",
        kind=CLUSTER,
        pattern=r"CoordinationService/RegisterTask",
        words=("CoordinationService/RegisterTask",),
        secondary=True,
        cause="jax.distributed.initialize() waited in vain for other hosts: worker 0 is not up, not"
        " all were started, or its port (8482; 8476 until JAX 0.8.0) is closed between them",
        fix=f"{TOGETHER}; else open the port, or set JAX_COORDINATOR_PORT=8476 on all hosts",
        source="jax 0.10.2; jax#35905, jax#22436, jax#24399",
        evidence="measured, report",
    ),
    Rule(
        id="barrier-timeout",
        kind=CLUSTER,
        pattern=r"Barrier timed out(?:\. (?:Id|Barrier_id): ?(?P<barrier>[^\s,]+))?",
        words=("Barrier timed out",),
        secondary=True,
        cause="some hosts came late or not at all. Barriers named PjRT_Client_Connect or [Init] are"
        " of the start, *_async_write_complete of a checkpoint, Shutdown of the end",
        fix="the message names the hosts that are missing: look there; wait longer only if they"
        " make progress",
        source="openxla/xla coordination_service.cc; llama-2-jax#20",
        evidence="source, report",
    ),
)

DESYNC_RULES = (
    Rule(
        id="launch-group",
        kind=DESYNC,
        pattern=r"An unexpected (?:peer|leader) shows up in the launch group",
        words=("shows up in the launch group",),
        cause="hosts run different programs: code, settings, libtpu or flags differ, they take"
        " different numbers of steps, or one reads an old compilation cache",
        fix="compare code, `pip freeze`, XLA_FLAGS, LIBTPU_INIT_ARGS and steps of all hosts; clear"
        " JAX_COMPILATION_CACHE_DIR",
        source="openxla/xla docs/errors/error_0200.md",
        evidence="source, report",
    ),
    Rule(
        id="hosts-unlike",
        kind=DESYNC,
        pattern=r"herd: the hosts are not alike",
        words=("the hosts are not alike",),
        generic=True,
        cause="the hosts differ in what must be equal on all of them",
        fix="the line says in what; `herd sync` gives all hosts the same code, `setup:` the same"
        " packages",
        source="tpuherd_host.train",
        evidence="measured",
    ),
)

PEER_RULES = (
    Rule(
        id="silent-host",
        kind=PEER,
        pattern="",
        cause="this host's log ends without a word while the others lost it: it was killed (often"
        " because its memory ran out), preempted or rebooted",
        fix="`herd events` shows what became of the node; `herd exec HOST -- 'sudo dmesg -T | grep"
        ' -iE "oom|killed"\'` whether the kernel killed it',
        source="what the other hosts' logs say",
        evidence="measured",
    ),
    Rule(
        id="peer-unhealthy",
        kind=PEER,
        pattern=r"[Tt]asks? are unhealthy",
        words=("are unhealthy",),
        cause="the listed tasks ended, or were silent for longer than the heartbeat (100 s)",
        fix="look at these hosts first: preempted, killed, or the last lines of their logs",
        source="jax 0.10.2; jax docs/fault_tolerance.rst",
        evidence="measured, source",
    ),
    Rule(
        id="peer-heartbeat",
        kind=PEER,
        pattern=r"(?:Task (?P<task>\S+) )?heartbeat timeout",
        words=("heartbeat timeout",),
        cause="another host ended, or was silent for longer than the heartbeat (100 s)",
        fix=FIRST,
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="leader-lost",
        kind=PEER,
        pattern=r"Failed to send RPC to coordination service",
        words=("Failed to send RPC to coordination service",),
        cause="worker 0, the coordinator, ended, and all others end at once",
        fix="look at the log of worker 0",
        source="jax 0.10.2",
        evidence="measured, source",
    ),
    Rule(
        id="peer-socket",
        kind=PEER,
        pattern=r"Gloo \w+ failed|gloo/transport/tcp|Connection (?:reset|closed) by peer"
        r"|Socket closed",
        words=("Gloo ", "gloo/transport/tcp", " by peer", "Socket closed"),
        generic=True,
        cause="another host ended in the middle of a collective operation",
        fix=FIRST,
        source="jax 0.10.2",
        evidence="measured, report",
    ),
    Rule(
        id="service-shutdown",
        kind=PEER,
        pattern=r"Barrier failed because service is shutting down",
        words=("service is shutting down",),
        cause="worker 0 ended while others were joining, or two runs share one coordinator port",
        fix="look at the log of worker 0; see that nothing else listens on port 8482 or 8476",
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="barrier-failed",
        kind=PEER,
        pattern=r"Barrier failed",
        words=("Barrier failed",),
        generic=True,
        cause="a host did not reach a point that all must reach",
        fix=FIRST,
        source="openxla/xla coordination_service.cc",
        evidence="source",
    ),
    Rule(
        id="shutdown-barrier",
        kind=PEER,
        pattern=r"[Ss]hutdown barrier",
        words=("hutdown barrier",),
        cause="some host did not come to the orderly end",
        fix=FIRST,
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="jax-fatal",
        kind=PEER,
        pattern=r"Terminating process because the (?:JAX|coordination|TF) ?\w* ?service detected"
        r" fatal|another task died",
        words=("service detected fatal", "another task died"),
        generic=True,
        cause="JAX ends this process because another one is gone or never came",
        fix=FIRST,
        source="jax 0.10.2",
        evidence="measured",
    ),
    Rule(
        id="raw-abort",
        kind=PEER,
        pattern=r"RAW: Raising signal|Fatal Python error: Aborted|\*\*\* SIGABRT",
        words=("RAW: Raising signal", "Fatal Python error: Aborted", "*** SIGABRT"),
        generic=True,
        cause="native code ended the process, usually because another host was lost",
        fix=FIRST,
        source="jax#12456; marin-community/marin",
        evidence="report",
    ),
    Rule(
        id="continuator",
        kind=PEER,
        pattern=r"program continuator has halted",
        words=("program continuator has halted",),
        cause="the chip's program ended after a fault elsewhere",
        fix=FIRST,
        source="marin-community/marin",
        evidence="report",
    ),
    Rule(
        id="slice-health",
        kind=PEER,
        pattern=r"Slice health check failed",
        words=("Slice health check failed",),
        cause="another host of the slice went away",
        fix=f"{FIRST}; `herd events` shows what the cloud says of the node",
        source="marin-community/marin",
        evidence="report",
    ),
    Rule(
        id="herd-peer-gone",
        kind=PEER,
        pattern=r"herd: another process is gone",
        words=("another process is gone",),
        cause="another host ended, and this one ended with it",
        fix=FIRST,
        source="tpuherd_host.train",
        evidence="measured",
    ),
)
