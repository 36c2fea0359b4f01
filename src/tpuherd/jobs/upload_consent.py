"""Asks whether a snapshot of code may leave this machine."""

import asyncio
from collections.abc import Callable

from tpuherd.jobs.open_project import Prompter
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import Snapshot

FINDINGS_MAX = 5


async def ask_upload_consent(
    snapshot: Snapshot, taking: Callable[[], Snapshot], archive: Archive, prompter: Prompter
) -> Snapshot | None:
    """Show notes, and ask once about secret-looking or large files; None if the user says no.

    Files skipped because of their size are read by `taking` after the user agrees.
    """
    while True:
        for note in snapshot.notes:
            await prompter.show_message(note)
        if snapshot.findings:
            whys = [finding.why for finding in snapshot.findings]
            more = len(whys) - FINDINGS_MAX
            findings = "; ".join(whys[:FINDINGS_MAX]) + (f"; and {more} more" if more > 0 else "")
            if not await prompter.ask_confirmation(
                f"{findings} (to exclude it, add it to .herdignore)"
            ):
                return None
            archive.approve_findings(snapshot.findings)
        if snapshot.id:
            return snapshot
        snapshot = await asyncio.to_thread(taking)
