"""The start of a Ray cluster over four hosts: `cluster: ray` against `ray start` over SSH.

    .venv/bin/python bench/ray_start.py [--rounds 2] [--json FILE]

Measured is the time until `ray.init` in a program on worker 0 sees four nodes. For ours it begins
with the launch of the attempt, by the engine's log; by hand, with the first command: `ray start
--head` on worker 0, then `ray start --address` on the others at once by xargs and ssh, then the
program by ssh. Both take turns on v4-32 nodes of one world; all hosts share this machine's cores.
Needs .venv-clients/ray: make_venv.sh ray.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from time import time

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import find_version, pair_row, write_figures

from tests.conformance.login import Login, logged_in
from tests.conformance.world import CLIENTS, run
from tests.integration.engines import Owner, owner

RAY = (CLIENTS / "ray").resolve()  #: hosts do not see links of this machine
ZONE, HOSTS = "us-central2-b", 4
PROGRAM = f"""
import time, ray
ray.init(logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < {HOSTS}:
    time.sleep(0.02)
print("all nodes at", time.time(), flush=True)
"""


def parse_end(text: str) -> float:
    found = re.search(r"all nodes at ([\d.]+)", text)
    assert found is not None, text
    return float(found[1])


def start_by_job(user: Owner, name: str) -> float:
    """Seconds from the launch of its attempt."""
    command = f"{RAY}/bin/python nodes.py"
    code = str(user.home / "code")
    user.job(name, command, accelerator="v4-32", zones=[ZONE], workdir=code, cluster="ray")
    done = user.herd("wait", name, seconds=200)
    assert done.returncode == 0, done.stderr
    said = user.said()
    text = "\n".join(line for about in said if about.startswith(name) for line in said[about])
    (launched,) = [one.at for one in user.events("attempt.launched") if one.slot == f"{name}-0"]
    return parse_end(text) - launched


def start_by_hand(login: Login, node: str) -> float:
    """Seconds from the first command."""
    where = f"v2/projects/demo/locations/{ZONE}/nodes/{node}"
    inside = [end["ipAddress"] for end in login.world.ask("GET", where)["networkEndpoints"]]
    outside, head = login.addresses(ZONE, node), f"{inside[0]}:6379"
    first = login.ssh(outside[0])

    def run_on_each(addresses: list[str], script: str) -> None:
        words = ["xargs", "-P", str(HOSTS), "-I", "{}", *login.ssh("{}"), script]
        done = subprocess.run(
            words, input="\n".join(addresses), env=login.env, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    begun = time()
    try:
        started = f"{RAY}/bin/ray start --head --port=6379 --node-ip-address={inside[0]}"
        done = run([*first, started], login.env)
        assert done.returncode == 0, done.stdout + done.stderr
        joins = f"{RAY}/bin/ray start --address={head} --node-ip-address=$(hostname -i)"
        run_on_each(outside[1:], joins)
        program = [*first, f"RAY_ADDRESS={head} {RAY}/bin/python -"]
        done = run(program, login.env, input=PROGRAM)
        return parse_end(done.stdout + done.stderr) - begun
    finally:
        run_on_each(outside, f"{RAY}/bin/ray stop --force")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not (RAY / "bin/ray").exists():
        print("ray_start: needs make_venv.sh ray")
        return 1
    ours, theirs = [], []
    with owner("--time-scale", "60", "--offer", str(RAY)) as user, logged_in(user.world) as login:
        code = user.home / "code"
        code.mkdir()
        (code / "nodes.py").write_text(PROGRAM)
        login.world.node(
            ZONE, "pod", acceleratorType="v4-32", metadata={"ssh-keys": login.line}
        )  # fmt: skip
        for number in range(asked.rounds):
            ours.append(start_by_job(user, f"ray{number}"))
            theirs.append(start_by_hand(login, "pod"))
            print(f"ours {ours[-1]:.1f} s, by hand {theirs[-1]:.1f} s", flush=True)
    figure = f"Ray on {HOSTS} hosts, until ray.init sees all"
    rows = [pair_row(figure, "s", ours, "ray start, xargs ssh", theirs)]
    if asked.json:
        versions = {"ray": find_version(RAY / "bin/ray", "--version")}
        write_figures(asked.json, "The start of Ray", rows, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
