"""Names of hosts for ssh: which there are, whose they are, and what is written where."""

import os
import stat
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.errors import InvalidInput
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.folders import resolve_folders
from tpuherd.settings.project_access import ProjectScope, get_user_name
from tpuherd.ssh_config import ssh_projects
from tpuherd.ssh_config.config_text import (
    BEGIN,
    END,
    SshFiles,
    SshProject,
    own_host_names,
    plan_names,
    replace_block,
    require_plain_words,
    write_config,
)
from tpuherd.ssh_config.host_names import (
    SshName,
    list_job_names,
    list_node_names,
    parse_ssh_name,
)
from tpuherd.ssh_config.user_file import UserConfig
from tpuherd.targets import KnownNode

FILES = SshFiles(folder=Path("/home/me/.config/tpuherd/ssh"), key=Path("/home/me/id_ed25519"))


def stored(name: str, **document: Any) -> StoredJob:
    return StoredJob(job=name, goal=Goal.RUN, document=document, made_at=0.0, changed_at=0.0)


def project(suffix: str, *jobs: str, **fields: Any) -> SshProject:
    plain = SshProject(
        suffix=suffix, key=f"key-{suffix}", title=f"the world {suffix}", herd=("/bin/herd",),
        login="me", environ={}, jobs=jobs,
    )  # fmt: skip
    return replace(plain, **fields)


def test_a_job_has_a_name_for_each_host_it_may_have() -> None:
    jobs = [stored("gpt", accelerator=["v4-8", "v4-16"], copies=2), stored("solo")]
    assert list_job_names(jobs) == (
        *("gpt", "gpt-0", "gpt-0-w0", "gpt-0-w1", "gpt-1", "gpt-1-w0", "gpt-1-w1"),
        *("solo", "solo-0", "solo-0-w0"),
    )
    assert list_job_names([stored("two", accelerator="v4-16", slices=2)]) == (
        "two", "two-0", "two-0.0-w0", "two-0.0-w1", "two-0.1-w0", "two-0.1-w1",
    )  # fmt: skip


def test_nodes_of_other_tools_have_names_and_those_of_others_have_none() -> None:
    nodes = [
        KnownNode(name="mine", zone="z", workers=2),
        KnownNode(name="gpt-0-g3-abc", zone="z", workers=1),
        KnownNode(name="gpt-1-g3-xyz", zone="z", workers=1, foreign=True),
        KnownNode(name="adopted", zone="z", workers=1, bid="old-0-g1-abc"),
        KnownNode(name="empty", zone="z", workers=0),
        KnownNode(name="run-0-g1-abc-1", zone="z", workers=1),
    ]
    assert list_node_names(nodes) == (
        *("mine-w0", "mine-w1", "gpt", "gpt-0", "gpt-0-w0"),
        *("old", "old-0", "old-0-w0", "adopted-w0"),
        *("run", "run-0", "run-0.1-w0"),
    )


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,8}-[0-9]", fullmatch=True),
    st.integers(0, 600),
    st.none() | st.integers(0, 9),
)
def test_a_written_name_is_parsed_back(slot: str, worker: int, part: int | None) -> None:
    name = f"{slot}-w{worker}" if part is None else f"{slot}.{part}-w{worker}"
    assert parse_ssh_name(name) == SshName(node=slot, part=part, worker=worker)


def test_a_name_of_two_projects_belongs_to_neither_and_is_there_with_each_suffix() -> None:
    lab, paper = project("lab", "gpt", "gpt-0"), project("paper", "gpt-0", "eval-0")
    plan = plan_names([lab, paper], taken=["eval-0"])
    assert plan.names == {
        "lab": ("gpt", "gpt.lab", "gpt-0.lab"),
        "paper": ("gpt-0.paper", "eval-0.paper"),
    }
    assert plan.shared == {"gpt-0": ("lab", "paper")}
    assert plan.taken == ("eval-0",)
    text = write_config([lab, paper], plan, FILES)
    assert "write gpt-0.lab or gpt-0.paper'" in text
    assert plan_names([lab], taken=()).names == {"lab": ("gpt", "gpt-0")}


def test_no_name_from_the_cloud_can_add_an_option() -> None:
    odd = project("lab", "a\nProxyCommand evil", "b c", "*", "!x", "%h", "-o", "$(x)", "", "fine")
    text = write_config([odd], plan_names([odd], ()), FILES)
    assert "Host fine\n" in text
    assert "evil" not in text


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a%b", "a[b]", "a$b", "a*"])
def test_paths_that_ssh_would_misread_are_refused(name: str) -> None:
    files = replace(FILES, folder=Path("/home") / name)
    with pytest.raises(InvalidInput, match="does not accept"):
        require_plain_words(project("lab"), files)
    require_plain_words(project("lab"), replace(FILES, folder=Path("/my home/it's")))
    with pytest.raises(InvalidInput, match="not a login"):
        require_plain_words(project("lab", login="me\nHost *"), FILES)


def test_a_socket_path_that_is_too_long_is_left_out() -> None:
    long = replace(FILES, folder=Path("/" + "x" * 60))
    assert "ControlPath" in write_config(
        [project("a", "n")], plan_names([project("a", "n")], ()), FILES
    )
    assert "Control" not in write_config(
        [project("a", "n")], plan_names([project("a", "n")], ()), long
    )


OTHERS = st.text(alphabet='Host \n\r\tgpt*#="é', max_size=80)


@given(OTHERS)
def test_our_lines_come_and_go_and_nothing_else_changes(text: str) -> None:
    path = Path("/my home/config")
    with_ours = replace_block(text, path)
    assert with_ours.startswith(f"{BEGIN}\n")
    assert f'\nInclude "{path}"\n{END}\n' in with_ours
    assert with_ours.endswith(text)
    assert replace_block(with_ours, path) == with_ours
    assert replace_block(with_ours, None) == text
    assert replace_block(text, None) == text


@pytest.mark.parametrize("odd", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_damaged_lines_of_ours_are_not_guessed_at(odd: str) -> None:
    with pytest.raises(InvalidInput, match="are damaged"):
        replace_block(f"Host x\n{odd}Host y\n", Path("/x"))


def test_names_of_the_user_are_found_and_patterns_are_not() -> None:
    text = 'Host a b\n  host = "c"\nHost * !d e?\nHostName f\n#Host g\nMatch host h\n'
    assert own_host_names(replace_block(text, Path("/x"))) == {"a", "b", "c"}


def test_a_linked_file_keeps_its_link_mode_and_bytes(tmp_path: Path) -> None:
    home, dotfiles = tmp_path / "my home", tmp_path / "dotfiles"
    (home / ".ssh").mkdir(parents=True)
    dotfiles.mkdir()
    before = b"# \xff\xfe\r\nHost x\r\n  User y\r\n"
    (dotfiles / "config").write_bytes(before)
    (dotfiles / "config").chmod(0o640)
    user = UserConfig(home)
    user.path.symlink_to(dotfiles / "config")
    backup = user.include(tmp_path / "ours")
    assert backup is not None
    assert backup.read_bytes() == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert user.path.is_symlink()
    assert (dotfiles / "config").read_bytes().endswith(b"\n\n" + before)
    assert stat.S_IMODE((dotfiles / "config").stat().st_mode) == 0o640
    assert user.include(tmp_path / "ours") is None
    user.include(None)
    assert (dotfiles / "config").read_bytes() == before


def test_an_unreadable_or_odd_file_is_one_sentence_and_stays(tmp_path: Path) -> None:
    user = UserConfig(tmp_path)
    user.path.mkdir(parents=True)
    with pytest.raises(InvalidInput, match="can't be read"):
        user.include(tmp_path / "ours")
    user.path.rmdir()
    user.path.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InvalidInput, match="not a text file"):
        user.include(tmp_path / "ours")
    assert user.path.read_bytes() == b"\x7fELF\0\0"


def place(home: Path) -> ProjectScope:
    folders = resolve_folders({"HOME": str(home)})
    return ProjectScope(world=home / "world", project="", folders=folders)


def test_names_follow_the_jobs_once_they_are_installed(tmp_path: Path) -> None:
    here = place(tmp_path)
    ssh_projects.refresh_job_names(here, {"HOME": str(tmp_path)}, [stored("early")])
    files = ssh_projects.ssh_files(here.folders.config)
    assert not files.folder.exists()
    with ssh_projects.edit_projects(files):
        ssh_projects.save_project(files, project("world", "old", key=here.logs_folder.name))
        ssh_projects.write_all(files, UserConfig(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host gpt-0\n  HostName elsewhere\n")
    ssh_projects.refresh_job_names(here, {"HOME": str(tmp_path)}, [stored("gpt")])
    assert "\nHost gpt gpt-0-w0\n" in files.config.read_text()
    changed = files.config.stat().st_mtime_ns
    ssh_projects.refresh_job_names(here, {"HOME": str(tmp_path)}, [stored("gpt")])
    assert files.config.stat().st_mtime_ns == changed
    ssh_projects.refresh_job_names(here, {"HOME": str(tmp_path)}, [])
    assert "Host" not in files.config.read_text()


def test_jobs_of_other_users_have_no_names(tmp_path: Path) -> None:
    here = place(tmp_path)
    environ = {"HOME": str(tmp_path)}
    me = get_user_name(here.folders.config, environ)
    files = ssh_projects.ssh_files(here.folders.config)
    with ssh_projects.edit_projects(files):
        ssh_projects.save_project(files, project("world", "old", key=here.logs_folder.name))
        ssh_projects.write_all(files, UserConfig(tmp_path))
    jobs = [stored("gpt"), replace(stored("own"), user=me), replace(stored("nas"), user="bob")]
    ssh_projects.refresh_job_names(here, environ, jobs)
    names = {
        word
        for line in files.config.read_text().splitlines() if line.startswith("Host ")
        for word in line.split()[1:]
    }  # fmt: skip
    assert {"gpt", "own", "own-0"} <= names
    assert not {one for one in names if "nas" in one}
    nodes = [KnownNode(name="nas-0-g3-abc", zone="z", workers=1)]
    assert list_node_names(nodes, {"nas"}) == ()


def test_a_damaged_card_is_one_sentence(tmp_path: Path) -> None:
    files = ssh_projects.ssh_files(tmp_path)
    files.folder.mkdir()
    (files.folder / "lab.json").write_text("[]")
    with pytest.raises(InvalidInput, match=r"lab\.json can't be used"):
        ssh_projects.load_projects(files)


def test_suffixes_are_unique_and_stay() -> None:
    projects = [project("world")]
    assert ssh_projects.choose_suffix("world", "key-world", projects) == "world"
    assert ssh_projects.choose_suffix("world", "other", projects) == "world-2"
    assert ssh_projects.choose_suffix("My Project", "other", projects) == "my-project"
    assert ssh_projects.choose_suffix("17", "other", projects) == "p17"


def test_a_refusal_is_what_an_ssh_server_says_at_the_end() -> None:
    script = (
        "import sys; from tpuherd import ssh_proxy;"
        " sys.exit(ssh_proxy.run(['--refuse', sys.argv[1]], {}, None))"
    )
    for sentence in ("x" * count for count in range(1, 20)):
        done = subprocess.run(
            [sys.executable, "-c", script, sentence],
            capture_output=True, stdin=subprocess.DEVNULL, cwd=os.sep, check=False,
        )  # fmt: skip
        greeting, _, packet = done.stdout.partition(b"\r\n")
        length, padding, kind, _ = struct.unpack(">IBBI", packet[:10])
        assert (done.returncode, greeting, kind) == (255, b"SSH-2.0-herd", 1)
        assert len(packet) == length + 4
        assert len(packet) % 8 == 0
        assert padding >= 4
        assert struct.unpack(">I", packet[10:14])[0] == len(sentence)
        assert packet[14 : 14 + len(sentence)].decode() == sentence
