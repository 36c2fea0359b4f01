"""A sweep as users run it: five trials on two nodes, one of which is preempted."""

import json
from pathlib import Path

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner
from tpuherd.history.apply_trial_events import SWEEPS, build_sweep
from tpuherd.model.sweep_trials import Sweep

pytestmark = pytest.mark.real

RUN = """\
echo "slot $HERD_SLOT of $HERD_SLOTS: trial $HERD_TRIAL try $HERD_ATTEMPT resume $HERD_RESUME"
echo "words {lr} $HERD_PARAM_LR $HERD_PARAMS $RUN_ID $HERD_CHECKPOINT"
for step in 1 2 3 4 5 6 7; do
    python3 -m tpuherd_host.report step=$step loss=$step$HERD_TRIAL
    sleep 0.7
done
[ "$HERD_TRIAL $HERD_ATTEMPT" != "1 1" ] || sleep 200  # it is still there when its node is taken
python3 -m tpuherd_host.report step=8 loss=8$HERD_TRIAL
python3 -m tpuherd_host.report complete
"""


def sweep_of(user: Owner) -> Sweep:
    return build_sweep(user.events(*SWEEPS))


def test_a_sweep_outlives_a_node_and_leaves_nothing(user: Owner) -> None:
    fields = {
        "name": "try", "accelerator": "v4-8", "zones": "us-central2-b", "copies": 2, "run": RUN,
        "checkpoint": "/data/try",
        "sweep": {"method": "grid", "metric": "loss", "parameters": {"lr": [0.1, 1, 2, 3, 4]}},
    }  # fmt: skip
    file = user.home / "try.yaml"
    file.write_text(json.dumps(fields))
    done = user.herd("sweep", file, "--dry-run")
    assert "5 trials:\nTRIAL  lr\n0      0.1" in done.stdout, done.stderr
    done = user.herd("sweep", file, "--detach", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 5

    first = until(
        lambda: next(
            (one for one in user.events("trial.reported") if one.facts["trial"] == 1), None
        ),
        "trial 1 to say something",
        seconds=60,
    )
    lost = first.facts["trial"]
    done = user.herd("sim", "weather", "preempt", f"{first.slot}-*", "0s")
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", "try", seconds=120).returncode == 0

    sweep = sweep_of(user)
    assert [(one.status_word, one.value) for one in sweep.trials] == [
        ("complete", float(f"8{number}")) for number in range(5)
    ]
    given = [one for one in user.events("trial.assigned") if one.facts["trial"] == lost]
    assert [one.facts["resumed"] for one in given] == [False, True]
    assert len(user.events("trial.ended")) == 5
    text = "\n".join(line for lines in user.said().values() for line in lines)
    again = sweep.trials[lost]
    assert f"trial {lost} try 2 resume 1" in text
    assert "slot 0 of 2: trial" in text and "slot 1 of 2: trial" in text
    for one in sweep.trials:
        lr = one.params["lr"]
        words = f'words {lr} {lr} {{"lr": {lr}}} {one.run} /data/try/{one.run}'
        assert text.count(words) == (2 if one is again else 1), text
    done = user.herd("down", "try", "--yes", seconds=120)
    assert done.returncode == 0, done.stderr
    assert user.all_there_is() == []


RESUMING = """\
import os, sys
from pathlib import Path

trial, attempt = os.environ["HERD_TRIAL"], os.environ["HERD_ATTEMPT"]
saved = Path("ckpt.txt")
found = saved.read_text() if saved.exists() else "nothing"
data, here = Path("from_setup.txt"), Path("where.txt").read_text().strip()
print(f"trial {trial} attempt {attempt} found {found} data {data.read_text().strip()}", flush=True)
assert here == os.getcwd(), "paths that the setup wrote lead to the trial's files"
data.write_text(f"spoilt by {trial}")
saved.write_text(f"{trial} from {attempt}")
Path("results").mkdir(exist_ok=True)
Path("results", f"of-{trial}-{attempt}.txt").write_text(found)
if (trial, attempt) == ("1", "1"):
    sys.exit(3)
from tpuherd_host.report import report
report(step=1, loss=float(trial))
report(complete=True)
"""


def test_no_trial_resumes_from_a_file_of_another(user: Owner) -> None:
    code = user.home / "resuming"
    code.mkdir()
    (code / "train.py").write_text(RESUMING)
    fields = {
        "name": "res", "accelerator": "v4-8", "zones": "us-central2-b", "run": "python3 train.py",
        "workdir": "resuming", "outputs": ["results"],
        "setup": "echo kept > from_setup.txt; pwd > where.txt",
        "sweep": {"method": "grid", "metric": "loss", "parameters": {"lr": [1, 2, 3]}},
    }  # fmt: skip
    file = user.home / "res.yaml"
    file.write_text(json.dumps(fields))
    done = user.herd("sweep", file, "--detach", "--yes")
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", "res", seconds=180).returncode == 0
    text = [line for log, lines in user.said().items() if log.startswith("res-") for line in lines]
    assert sorted(line for line in text if line.startswith("trial ")) == [
        "trial 0 attempt 1 found nothing data kept",
        "trial 1 attempt 1 found nothing data kept",
        "trial 1 attempt 2 found 1 from 1 data spoilt by 1",
        "trial 2 attempt 1 found nothing data kept",
    ]
    moved = [one for one in user.events("trial.files_moved") if one.job == "res"]
    assert moved == [], "their outputs are here: what else they wrote is removed"
    folders = [Path(one.facts["folder"]) for one in user.events("slot.collected")]
    brought = [
        {file.name for file in folder.rglob("of-*.txt")}
        for folder in folders
        if folder.parent.name == "res-0"
    ]
    assert brought == [{"of-0-1.txt"}, {"of-1-1.txt", "of-1-2.txt"}, {"of-2-1.txt"}]
    assert user.herd("down", "res", "--yes", seconds=120).returncode == 0
