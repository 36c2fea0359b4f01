"""The field `notify`: what it accepts, what it says about mistakes, and that it hides addresses."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tpuherd.jobfile.fields import job_json_schema
from tpuherd.jobfile.notify_fields import hidden_secrets
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields, read_job
from tpuherd.model.receivers import Receiver, ReceiverKind, Topic
from tpuherd.notify.ready_receivers import receiver_mark, resolve_receivers

HEAD = "name: gpt\naccelerator: v4-8\nrun: x\n"
SLACK = "https://hooks.slack.com/services/T0/B0/canary-token"


def job_with(notify: Any) -> JobSpec:
    found = read_fields({"name": "gpt", "accelerator": "v4-8", "run": "x", "notify": notify})
    assert isinstance(found, JobSpec), found
    return found


@pytest.mark.parametrize(
    ("notify", "kind"),
    [
        (SLACK, ReceiverKind.SLACK),
        ("https://discord.com/api/webhooks/1/canary", ReceiverKind.DISCORD),
        ("https://ntfy.sh/my-topic", ReceiverKind.NTFY),
        ("https://example.com/hook", ReceiverKind.WEBHOOK),
        ({"url": "tgram://1/2", "kind": "apprise"}, ReceiverKind.APPRISE),
        ({"run": "notify-send x"}, ReceiverKind.COMMAND),
        ({"host": "mail.example.com", "to": "a@example.com"}, ReceiverKind.EMAIL),
        ({"url": {"env": "SLACK_URL"}}, None),
    ],
)
def test_the_kind_is_known_by_what_is_there(notify: Any, kind: ReceiverKind | None) -> None:
    job = job_with(notify)
    assert job.notify is not None
    assert job.notify[0].kind is kind
    jsonschema.validate(notify, job_json_schema()["properties"]["notify"])


def test_no_document_has_an_address_a_token_or_a_password() -> None:
    mail = {"host": "mail.example.com", "to": "a@b.c", "user": "a", "password": "canary-password"}
    job = job_with([SLACK, mail, {"url": "https://ntfy.sh/canary-topic", "token": "canary-tk"}])
    document = job_document(job)
    assert "canary" not in json.dumps(document) and "canary" not in repr(job)
    again = read_fields(document)
    assert isinstance(again, JobSpec) and job_document(again) == document
    assert [one.name for one in hidden_secrets(job.notify or ())] == [
        "notify-0-url", "notify-1-password", "notify-2-url", "notify-2-token",
    ]  # fmt: skip
    assert hidden_secrets(again.notify or ()) == (), "herd has them already"
    jsonschema.validate(document["notify"], job_json_schema()["properties"]["notify"])


def test_nobody_and_nothing_said_differ() -> None:
    assert job_document(job_with([]))["notify"] == []
    without = read_fields({"name": "gpt", "accelerator": "v4-8", "run": "x"})
    assert isinstance(without, JobSpec) and "notify" not in job_document(without)


def test_topics_and_limits() -> None:
    said = {"url": SLACK, "on": ["done", "waiting"], "waiting": "2h", "cost": "50%", "digest": "1h"}
    (one,) = job_with(said).notify or ()
    assert one.on == (Topic.DONE, Topic.WAITING)
    assert (one.waiting, one.cost, one.digest) == (7200.0, 0.5, 3600.0)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("notify: hooks.slack.com/services/canary", "4: notify: has no scheme: an address begins"
         " with https://, such as https://ntfy.sh/my-topic"),
        ("notify:\n  - kind: slak\n    url: https://x.y/z", "5: notify[0].kind: 'slak' is not"
         " allowed: did you mean slack?"),
        ("notify:\n  - {url: 'https://x.y/z', run: echo}", "5: notify[0].run: url and run can't be"
         " combined: each is a receiver of its own"),
        ("notify:\n  kind: email\n  to: a@b.c", "4: notify: an e-mail receiver needs host:"
         " write host: smtp.example.com"),
        ("notify:\n  kind: slack\n  on: [done]", "4: notify: a receiver of kind slack needs url:"
         " write url: {env: SLACK_URL}"),
        ("notify:\n  on: [done]", "4: notify: says nobody to tell: write url, run, or host and to"),
        ("notify:\n  url: https://x.y/z\n  on: [don]", "6: notify.on[0]: 'don' is not allowed: did"
         " you mean done?"),
        ("notify:\n  url: https://x.y/z\n  urll: 1", "6: notify.urll: unknown field: did you mean"
         " url?"),
        ("notify:\n  url: {vault: x}", "5: notify.url.vault: not a known source: use one of env,"
         " file, command"),
        ("notify:\n  url: mailto://canary", "5: notify.url: begins with a scheme that is not https:"
         " write kind: apprise if it is one of apprise's"),
        ("notify:\n  url: https://ntfy.sh/", "5: notify.url: names no topic: write"
         " https://ntfy.sh/TOPIC"),
        ("notify:\n  kind: slack\n  url: https://x.y/z\n  token: a", "7: notify.token: is not a"
         " field of a receiver of kind slack"),
        ("notify:\n  host: m.example.com\n  to: a@b.c\n  user: a", "4: notify: user and password"
         " belong together: password is missing"),
        ("notify:\n  {host: m.example.com, to: a@b.c, user: a, password: p, tls: none}",
         "5: notify.tls: would send the password in the clear: use starttls or implicit"),
        ("notify:\n  url: https://x.y/z\n  cost: 80", "6: notify.cost: 80 is not a share: write 0.8"
         " or 80%"),
        ("notify: 5", "4: notify: should be an address, or the fields of a receiver such as url and"
         " on"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_its_line_and_without_the_address(
    lines: str, sentence: str
) -> None:
    found = read_job(HEAD + lines)
    assert isinstance(found, list)
    said = [one.format_line("job.yaml") for one in found]
    assert said == [f"job.yaml:{sentence}"]
    assert "canary" not in said[0]


def test_a_lost_value_is_a_problem_of_its_receiver() -> None:
    specs = job_with([{"url": {"env": "A"}}, {"url": {"env": "B"}}]).notify or ()
    good, bad = resolve_receivers(specs, {"notify-0-url": SLACK}, of_job=False)
    assert (good.kind, good.title, good.problem) == (
        ReceiverKind.SLACK,
        "slack at hooks.slack.com",
        "",
    )
    assert "its url is missing" in bad.problem
    assert "canary" not in repr(good)


def test_equal_receivers_of_two_jobs_are_one() -> None:
    specs = job_with([SLACK]).notify or ()
    one, other, third = (
        resolve_receivers(specs, {"notify-0-url": url}, of_job=False)[0]
        for url in (SLACK, SLACK, f"{SLACK}x")
    )
    assert one.key == other.key != third.key


def marks(*specs: Receiver) -> dict[str, str]:
    """What this account keeps of the receivers of a job that it has submitted."""
    return {f"notify-{at}-mark": receiver_mark(one) for at, one in enumerate(specs)}


def stored_receivers(notify: Any) -> tuple[tuple[Receiver, ...], tuple[Receiver, ...]]:
    """Receivers as submitted, and as they come back from the store."""
    job = job_with(notify)
    again = read_fields(json.loads(json.dumps(job_document(job))))
    assert isinstance(again, JobSpec)
    return job.notify or (), again.notify or ()


MAIL = {"host": "mail.example.com", "to": "a@b.c", "user": "a", "password": "canary-password"}
PLAIN_MAIL = {"host": "mail.example.com", "to": "a@b.c", "waiting": "90m", "cost": "70%"}


@pytest.mark.parametrize("others", [False, True])
def test_receivers_of_a_job_that_was_submitted_here_are_used(others: bool) -> None:
    said, stored = stored_receivers([SLACK, {"run": ["echo", "x"]}, MAIL, PLAIN_MAIL])
    values = {"notify-0-url": SLACK, "notify-2-password": "canary-password", **marks(*said)}
    found = resolve_receivers(stored, values, of_job=True, others=others)
    assert [(one.withheld, one.problem) for one in found] == [("", "")] * 4
    assert found[2].values == {"password": "canary-password"}


def test_receivers_of_a_job_that_others_submitted_are_withheld() -> None:
    _, stored = stored_receivers([{"run": "id"}, PLAIN_MAIL, {"run": ["id"], "kind": "command"}])
    for others, mail in ((False, "others"), (True, "")):
        found = resolve_receivers(stored, {}, of_job=True, others=others)
        assert [one.withheld for one in found] == ["command", mail, "command"]


def test_a_receiver_that_another_changed_gets_neither_its_command_nor_its_password() -> None:
    said, _ = stored_receivers([{"run": "id"}, MAIL])
    values = {"notify-1-password": "canary-password", **marks(*said)}
    _, forged = stored_receivers([{"run": "id; rm -rf ~"}, {**MAIL, "host": "evil.example.com"}])
    for others in (False, True):
        command, mail = resolve_receivers(forged, values, of_job=True, others=others)
        assert command.withheld == "command"
        assert mail.values == {} and (mail.withheld or mail.problem)
    (swapped,) = resolve_receivers(forged[1:], values, of_job=True, others=True)
    assert swapped.values == {}
