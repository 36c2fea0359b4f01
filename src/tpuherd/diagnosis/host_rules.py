"""Rules for what surrounds the program: preemption, logins, disks, networks, SSH, and notes."""

from tpuherd.diagnosis.rule import Rule, RuleClass

PREEMPT, AUTH, DISK = RuleClass.PREEMPT, RuleClass.AUTH, RuleClass.DISK
NET, SSH, INFO = RuleClass.NET, RuleClass.SSH, RuleClass.INFO
AGAIN = "`herd run` requests another node and goes on from the last checkpoint by itself"

PREEMPT_RULES = (
    Rule(
        id="preempted",
        kind=PREEMPT,
        pattern=r"\bwas preempted\b(?!/)|received a preemption notice",
        words=("was preempted", "received a preemption notice"),
        cause="Google took the node away",
        fix=AGAIN,
        source="Cloud TPU",
        evidence="source",
    ),
    Rule(
        id="sigterm",
        kind=PREEMPT,
        pattern=r"SIGTERM caught at (?P<time>\S+)",
        words=("SIGTERM caught at",),
        stop=True,
        generic=True,
        cause="the program was told to end (SIGTERM): by a preemption, a shutdown of the host, or"
        " whoever stopped the run",
        fix="`herd events` shows whether the node was preempted; the program should save and end"
        " now",
        source="jax 0.10.2, preemption_notifier.cc",
        evidence="measured",
    ),
    Rule(
        id="gcloud-terminal",
        kind=PREEMPT,
        pattern=r'This TPU has terminal state "(?P<state>PREEMPTED|TERMINATED)"',
        words=("This TPU has terminal state",),
        cause="the node is {state} and can't be used any more",
        fix="delete it and request another one, as `herd run` does by itself",
        source="gcloud tpu_vm/exceptions.py",
        evidence="source",
    ),
    Rule(
        id="gcloud-state",
        kind=PREEMPT,
        pattern=r'This TPU has state "(?P<state>\w+)", so it cannot be currently connected to',
        words=("This TPU has state",),
        cause="the node is {state}",
        fix="start it, or request another one",
        source="gcloud tpu_vm/exceptions.py",
        evidence="source",
    ),
    Rule(
        id="gcloud-maint",
        kind=PREEMPT,
        pattern=r"going through a maintenance event",
        words=("going through a maintenance event",),
        cause="the node is under maintenance: its hosts reboot, and may get other addresses",
        fix="wait until it is READY and healthy again; `herd` reads the addresses anew",
        source="gcloud tpu_vm/exceptions.py",
        evidence="source",
    ),
)

AUTH_RULES = (
    Rule(
        id="gcs-denied",
        kind=AUTH,
        pattern=r"does not have (?P<permission>storage\.\w+\.\w+) (?:access|permission)"
        r"|Permission '(?P<denied>storage\.\w+\.\w+)' denied",
        words=("does not have storage.", "Permission 'storage."),
        cause="the node's service account may not do this with the bucket, or there are no"
        " credentials, as in a container",
        fix="`herd bucket grant BUCKET` gives a service account its roles; name it in the job as"
        " `service_account:`",
        source="Levanter's FAQ",
        evidence="report",
    ),
    Rule(
        id="gcs-token",
        kind=AUTH,
        pattern=r"All attempts to get a Google authentication bearer token failed",
        words=("authentication bearer token failed",),
        hint=True,
        cause="TensorFlow found neither credentials nor a metadata server",
        fix="harmless for public data; else give the node a service account with a role on the"
        " bucket",
        source="tsl google_auth_provider.cc",
        evidence="source",
    ),
    Rule(
        id="bucket-missing",
        kind=AUTH,
        pattern=r"The specified bucket does not exist",
        words=("The specified bucket does not exist",),
        cause="there is no bucket of this name",
        fix="`herd bucket check BUCKET`; `herd bucket create BUCKET --location ZONE` creates one",
        source="Cloud Storage",
        evidence="assumed",
    ),
    Rule(
        id="wandb-login",
        kind=AUTH,
        pattern=r"api_key not configured \(no-tty\)|No API key configured",
        words=("api_key not configured", "No API key configured"),
        cause="this host has no key for W&B; a login on worker 0 is not enough",
        fix="`wandb login` on your machine and `herd run` again, put WANDB_API_KEY into `secrets:`"
        " of the job, or set WANDB_MODE=disabled on the other hosts",
        source="wandb",
        evidence="source",
    ),
    Rule(
        id="hf-auth",
        kind=AUTH,
        pattern=r"(?:401|403) Client Error.*huggingface|GatedRepoError"
        r"|Repository Not Found for url: https://huggingface",
        words=("Client Error", "GatedRepoError", "Repository Not Found"),
        cause="this host has no token for Hugging Face, or its owner was not admitted to the model",
        fix="put HF_TOKEN into `secrets:` of the job; ask for access on the model's page",
        source="huggingface_hub",
        evidence="assumed",
    ),
    Rule(
        id="docker-sock",
        kind=AUTH,
        pattern=r"permission denied.*docker\.sock|docker\.sock.*permission denied",
        words=("docker.sock",),
        cause="the user is not in the group docker",
        fix="`sudo usermod -aG docker $USER`, then log in anew; or `sudo docker`",
        source="Levanter's documentation",
        evidence="report",
    ),
    Rule(
        id="artifact-auth",
        kind=AUTH,
        pattern=r"Unauthenticated requests do not have permission .artifactregistry",
        words=("Unauthenticated requests do not have permission",),
        cause="docker has no login for the registry",
        fix="`gcloud auth configure-docker REGION-docker.pkg.dev` on the host",
        source="Levanter's documentation",
        evidence="report",
    ),
    Rule(
        id="git-owner",
        kind=AUTH,
        pattern=r"detected dubious ownership in repository at '(?P<folder>[^']+)'",
        words=("detected dubious ownership",),
        cause="{folder} belongs to another user, as on a shared disk, and git refuses it",
        fix="`git config --global --add safe.directory FOLDER` on every host",
        source="git; Levanter's documentation",
        evidence="report",
    ),
    Rule(
        id="file-denied",
        kind=AUTH,
        pattern=r"PermissionError: \[Errno 13\] Permission denied: '(?P<file>[^']+)'",
        words=("PermissionError",),
        cause="{file} belongs to another user; often a run as root made it",
        fix="remove it or change its owner (`sudo chown`); start all runs as the same user",
        source="Python",
        evidence="assumed",
    ),
)

DISK_RULES = (
    Rule(
        id="disk-full",
        kind=DISK,
        pattern=r"No space left on device|Not enough free disk space|Disk quota exceeded",
        words=("No space left on device", "Not enough free disk space", "Disk quota exceeded"),
        cause="a disk of the host is full: caches of models or packages, /tmp/tpu_logs, dumps, W&B,"
        " docker. The boot disk of a TPU VM can't grow",
        fix="`herd exec NODE -- df -h`; move HF_HOME, WANDB_DIR and caches to /dev/shm or a"
        " `data_disks:`",
        source="skypilot#2778, skypilot#3497; ml-auto-solutions#1356",
        evidence="report",
    ),
    Rule(
        id="nofile",
        kind=DISK,
        pattern=r"Too many open files",
        words=("Too many open files",),
        cause="the process has more files open than it may (1024 in SSH sessions)",
        fix="`ulimit -n 65536` before the command",
        source="Linux",
        evidence="assumed",
    ),
    Rule(
        id="nfs-stale",
        kind=DISK,
        pattern=r"Stale file handle|\[Errno 116\]",
        words=("Stale file handle", "[Errno 116]"),
        cause="a shared folder was exported anew, or its server was recreated",
        fix="`herd exec NODE -- findmnt` shows where; `sudo umount -f -l` it there, and start the"
        " job again",
        source="Linux",
        evidence="assumed",
    ),
)

NET_RULES = (
    Rule(
        id="hf-429",
        kind=NET,
        pattern=r"429 Client Error: Too Many Requests|HTTP status client error \(429",
        words=("429 Client Error", "client error (429"),
        cause="all hosts ask the service at once, and it refuses",
        fix="put HF_TOKEN into `secrets:`; fetch the data once, copy it to the hosts or a bucket,"
        " then set HF_HUB_OFFLINE=1",
        source="huggingface/datasets#7344, #7506; torchtitan#4830",
        evidence="report",
    ),
    Rule(
        id="apt-lock",
        kind=NET,
        pattern=r"(?<!cache lock: )Could not get lock /var/lib/(?:dpkg|apt)"
        r"|dpkg: .+ is held by process \d+",
        words=("Could not get lock /var/lib", "is held by process"),
        cause="a new host installs updates in its first minutes",
        fix="`until sudo apt-get update; do sleep 5; done` in `setup:`, where `apt-get install`"
        " waits by itself",
        source="Levanter's set-up script",
        evidence="report",
    ),
    Rule(
        id="clock-skew",
        kind=NET,
        pattern=r"Token used too early|Invalid JWT|invalid_grant|certificate is not yet valid"
        r"|RequestTimeTooSkewed",
        words=(
            "Token used too early",
            "Invalid JWT",
            "invalid_grant",
            "certificate is not yet valid",
            "RequestTimeTooSkewed",
        ),
        cause="the clock of this host is wrong",
        fix="`herd exec NODE -- chronyc tracking`; `sudo systemctl restart chrony`",
        source="Google's login",
        evidence="assumed",
    ),
    Rule(
        id="dns",
        kind=NET,
        pattern=r"Temporary failure in name resolution|Name or service not known"
        r"|Could not resolve host: (?P<name>\S+)",
        words=("name resolution", "Name or service not known", "Could not resolve host"),
        generic=True,
        cause="a name can't be resolved: the host has no way out, or the name is wrong",
        fix="a node without external address needs Cloud NAT or Private Google Access",
        source="Linux",
        evidence="assumed",
    ),
    Rule(
        id="no-route",
        kind=NET,
        pattern=r"No route to host|Network is unreachable",
        words=("No route to host", "Network is unreachable"),
        generic=True,
        cause="the host can't reach the other side: no external address, or a firewall",
        fix="check the firewall; a node without external address needs Cloud NAT",
        source="Linux",
        evidence="assumed",
    ),
)

SSH_RULES = (
    Rule(
        id="ssh-agent",
        kind=SSH,
        pattern=r"SSH Key is not present in the SSH agent",
        words=("SSH Key is not present",),
        cause="gcloud with --worker=all needs a key with a passphrase to be in the agent",
        fix="`ssh-add ~/.ssh/google_compute_engine`; or use `herd exec`",
        source="gcloud tpu_vm/ssh.py",
        evidence="source",
    ),
    Rule(
        id="ssh-255",
        kind=SSH,
        pattern=r"exited with return code \[255\]",
        words=("return code [255]",),
        generic=True,
        cause="SSH failed: the key is not on the host yet, it boots, reboots or is preempted, its"
        " address changed, or a firewall is between",
        fix="`herd hosts NODE` shows its state and address of now",
        source="gcloud tpu_vm/ssh.py; pytorch/xla#3129",
        evidence="source, report",
    ),
    Rule(
        id="hostkey",
        kind=SSH,
        pattern=r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        words=("REMOTE HOST IDENTIFICATION", "Host key verification failed"),
        cause="another machine has this address now: the node was recreated, or its address went to"
        " someone else",
        fix="`herd ssh` keeps keys by node, not by address; for plain ssh: `ssh-keygen -R ADDRESS`",
        source="OpenSSH",
        evidence="assumed",
    ),
    Rule(
        id="publickey",
        kind=SSH,
        pattern=r"Permission denied \(publickey",
        words=("Permission denied (publickey",),
        cause="the host does not accept the key: it has not arrived yet, or the login name is wrong"
        " (with OS Login: name_domain_tld)",
        fix="wait a minute after the node is READY; then check OS Login and the metadata's keys",
        source="dstack#816; ml-auto-solutions#1182",
        evidence="report",
    ),
    Rule(
        id="ssh-drop",
        kind=SSH,
        pattern=r"Connection to \S+ closed by remote host|client_loop: send disconnect"
        r"|Connection timed out during banner|packet_write_wait: .*Broken pipe",
        words=(
            "closed by remote host",
            "client_loop: send disconnect",
            "timed out during banner",
            "packet_write_wait",
        ),
        cause="the connection was lost: the host shuts down, or the network broke; a command of"
        " plain ssh may still run there and hold the chips",
        fix="`herd hosts NODE` shows its state; `herd exec` and `herd ssh` survive this",
        source="pytorch/xla#3129",
        evidence="report",
    ),
    Rule(
        id="ssh-kex",
        kind=SSH,
        pattern=r"kex_exchange_identification",
        words=("kex_exchange_identification",),
        cause="the host refuses more logins at once, or its SSH server is just starting",
        fix="`herd exec` uses one connection a host; else fewer at once, or try again",
        source="OpenSSH",
        evidence="assumed",
    ),
)

INFO_RULES = (
    Rule(
        id="tpu-logs-perm",
        kind=INFO,
        pattern=r"Could not open (?:the log file '/tmp/tpu_logs|any log file)",
        words=("Could not open the log file", "Could not open any log file"),
        cause="/tmp/tpu_logs belongs to another user, as after a run as root",
        fix="`sudo chmod 1777 /tmp/tpu_logs`, or TPU_LOG_DIR=disabled",
        source="libtpu 0.0.51",
        evidence="measured",
    ),
    Rule(
        id="thp",
        kind=INFO,
        pattern=r"Transparent hugepages are not enabled",
        words=("Transparent hugepages",),
        cause="large memory pages are off, which makes the start on v5e and later slow",
        fix="in `setup:`: echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        source="jax/_src/cloud_tpu_init.py",
        evidence="measured",
    ),
    Rule(
        id="proxy-env",
        kind=INFO,
        pattern=r"JAX detected proxy variable",
        words=("JAX detected proxy variable",),
        cause="variables of a proxy are set; hosts may not reach their coordinator through it",
        fix="unset them for the run, or name the hosts in no_proxy",
        source="jax/_src/distributed.py",
        evidence="source",
    ),
    Rule(
        id="tcmalloc-preload",
        kind=INFO,
        pattern=r"object '\S*tcmalloc\S*' from LD_PRELOAD cannot be preloaded",
        words=("from LD_PRELOAD cannot be preloaded",),
        cause="LD_PRELOAD names a library that this container or image does not have",
        fix="unset LD_PRELOAD, or apt-get install google-perftools",
        source="glibc",
        evidence="assumed",
    ),
)
