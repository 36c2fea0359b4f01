"""The folders of a destination, while somebody else switches its tree."""

from pathlib import Path
from threading import Thread

from tpuherd_host.agent.snapshots.tree import switch_tree
from tpuherd_host.agent.snapshots.tree_layout import TREES_KEPT, find_destination, write_record

SWITCHES = 300


def test_a_tree_switched_during_the_look_is_never_taken_for_the_users(tmp_path: Path) -> None:
    agent_folder, home = tmp_path / "agent", tmp_path / "home"
    agent_folder.mkdir()
    home.mkdir()

    def switch_often() -> None:
        for number in range(SWITCHES):
            spot = find_destination(agent_folder, home, "code", force=True)
            new = spot.folder / f"t{number}"
            new.mkdir()
            (new / "main.py").touch()
            trees = [*spot.trees, {"id": str(number), "inode": new.stat().st_ino}]
            write_record(spot, trees[-20 * TREES_KEPT :])
            switch_tree(new, spot.dest)

    switcher = Thread(target=switch_often)
    switcher.start()
    seen: list[int] = []
    while switcher.is_alive():
        current = find_destination(agent_folder, home, "code").current
        seen.append(-1 if current is None else int(current))
    switcher.join()
    assert seen == sorted(seen)
    assert find_destination(agent_folder, home, "code").current == str(SWITCHES - 1)
