"""Changes of the judgement that change nothing: by the reason, each with its line as it stands."""

LONG_AGO = "a time that nobody knows is long ago, be it the first second of 1970 or the next"
KNOWN = "where this is read the time is known: the other word is for the type checker"
ENDLESS = "no number without end: the cap beside it is reached long before"
SHORT = "a short cut: what follows comes to the same"
UNASKED = "nobody asks for it there"

#: By the reason: room, the change, and the whole line, where needed with the one before it.
SAME: dict[str, tuple[tuple[str, str, str], ...]] = {
    LONG_AGO: (
        (
            "adopt",
            "0.0 → 1.0",
            'card = max(sights, key=lambda sight: float(sight.card.get("asked_at") or 0.0)).card',
        ),
        (
            "deeds",
            "0.0 → 1.0",
            "max(one.stepped_at or 0.0, one.logged_at or 0.0, one.started or launched)"
            " for one in works",
        ),
        (
            "deeds",
            "0.0 → 1.0",
            "due = 0.0 if last is None else last + case.slot.limits.grace_s + NOTICE_S",
        ),
        (
            "gang",
            "0.0 → 1.0",
            "ends = [(one.work.ended or 0.0) if one.work is not None else 0.0 for one in over]",
        ),
        ("deeds", "if always", "if bid.uncollected:"),
        ("limits", "0.0 → 1.0", "return max(bid.prepared_at or inf, ended or 0.0)"),
        ("phase", "0.0 → 1.0", "since = max(bid.sent_at, bid.withdrawn_at or 0.0)"),
        (
            "verdict",
            "0.0 → 1.0",
            "return work.ended or"
            " max(work.stepped_at or 0.0, work.logged_at or 0.0, work.started or 0.0)",
        ),
        (
            "verdict",
            "0.0 → 1.0",
            "key=lambda one:"
            " (one.work.ended or 0.0 if one.work is not None else 0.0, one.host.worker),",
        ),
    ),
    KNOWN: (
        (
            "verdict",
            "if always",
            "key=lambda one: (one.work.ended or 0.0 if one.work is not None else 0.0,"
            " one.host.worker),",
        ),
        ("bidding", "0.0 → 1.0", "due = (one.bid.withdrawn_at or 0.0) + pause"),
        ("bidding", "0.0 → 1.0", "until = (attempt.ended_at or 0.0) + DRAIN_S"),
        ("limits", "0.0 → 1.0", "rate = sum(bid.offer.price or 0.0 for bid in running)"),
        (
            "phase",
            "0.0 → 1.0",
            "return bid.name != used, not bid.prepared, bid.granted_at or 0.0, bid.generation",
        ),
    ),
    ENDLESS: (
        (
            "bidding",
            "10 → 11",
            "pause = min(AGAIN_S_MAX, AGAIN_S * 2.0 ** min(one.bid.withdrawals - 1, 10))",
        ),
        (
            "bidding",
            "10 → 11",
            "pause = AGAIN_S * 2.0 ** min(bid.sends - 2, 10) if bid.sends > 1 else 0.0",
        ),
        ("deeds", "10 → 11", "pause = UNCOLLECTED_S * 2 ** min(bid.uncollected - 1, 10)"),
        (
            "limits",
            "10 → 11",
            "pause = min(PAUSE_S_MAX, 10.0 * 2 ** min(many - 2, 10)) if many >= 2 else 0.0",
        ),
    ),
    SHORT: (
        ("phase", "if never", "return held[0] if len(held) == 1 else min(held, key=order)"),
        (
            "policy",
            "True → False",
            "return dict(zip(_COLUMNS, map(_MOVES.__getitem__, letters.split()), strict=True))",
        ),
        ("fold", "if always", "if event.kind in SWEEPS:"),
        ("fold_world", "if never", 'if event.facts["bid"] not in trails.bad_nodes:'),
        (
            "verdict",
            "if always",
            "if attempt.started_at is None or attempt.stopping_at is not None:",
        ),
        ("verdict", "if always", "if bid.lost_at is not None or bid.noticed_at is not None:"),
        ("verdict", "if never", "if undisturbed(attempt, bid, observed.hosts.get(bid.name, ())):"),
        ("verdict", "True → False", "return True"),
        ("verdict", "if never", "if work.attempt == attempt.id:"),
        ("verdict", "if always", "if host.boot not in attempt.boots:"),
        ("verdict", "if always", "if work.word is not WorkWord.RUNNING:"),
        ("zones", "if never", "if all((one.zone, one.rank) in taken for one in fit):"),
        ("zones", "if never", "if not trail.unfit:"),
        (
            "zones",
            "Lt → LtE",
            "if season.refusal is Refusal.PERMISSION and now < season.refused_at + season.pause_s",
        ),
        ("limits", "Lt → LtE", "if limits.cost < inf and spent(trail, now) >= limits.cost:"),
        (
            "limits",
            "3600 → 3601",
            "running = [bid for bid in trail.bids.values()"
            " if cost(bid, now + 3600) > cost(bid, now)]",
        ),
        ("gang", "if never", "if not over:"),
        ("bidding", "1 → 2", "turn = (-1, bid.asked_at, bid.slot, bid.generation)"),
        ("plan", "if never", "if work.attempt == known:"),
        ("plan", "dropped", "if work.attempt == known: continue"),
        (
            "plan",
            "if never",
            'known = case.trail.attempt.id if case.trail.attempt is not None else ""',
        ),
        ("plan", "if always", "if one.sight is None:"),
        ("plan", "if always", "if case.steps:"),
        ("deeds", "if always", "elif seat is not None:"),
        (
            "deeds",
            "if always",
            "verdict = attempt.verdict if attempt is not None else None",
        ),
        (
            "deeds",
            "if always",
            "return AFTER.get(verdict, Shape.INTERRUPTED)"
            " if verdict is not None else Shape.INTERRUPTED",
        ),
    ),
    UNASKED: (
        ("plan", "0.0 → 1.0", "wished_at=0.0,"),
        ("plan", "0.0 → 1.0", "world = overview(wishes, observed, trails, 0.0)"),
    ),
}
