"""Items of maps in shell text, as bash itself understands it: one argument, and never code."""

import subprocess
from itertools import product

from tpuherd.sweeps.shell_item import insert_item

ITEMS = ("a b", "$(exit 9)", "'; exit 9; '", '"; exit 9; "', "`exit 9`", "\\", "*", "-n", "x\ty",
         "\x01é", "${PATH}", "{}")  # fmt: skip
#: Shell text, and what it prints for an item.
TEXTS = {
    "printf '%s|' {}": "{}|",
    "printf '%s|'": "{}|",
    "printf '%s|' \"{}\"": "{}|",
    "printf '%s|' '{}'": "{}|",
    "printf '%s|' \"a{}b\" {}": "a{}b|{}|",
    "# don't\nprintf '%s|' {} # it's\n": "{}|",
    "printf '%s|' it\\'s {}": "it's|{}|",
    "printf '%s|' 'x\"{}\"' \"#{}\"": 'x"{}"|#{}|',
    "true;# it's\nprintf '%s|' {}": "{}|",
}


def test_an_item_is_one_argument_at_any_position() -> None:
    cases = list(product(ITEMS, TEXTS))
    lines = [
        f"HERD_ITEM=$ITEM_{ITEMS.index(item)}\n{insert_item(text)}\necho" for item, text in cases
    ]
    variables = {f"ITEM_{at}": item for at, item in enumerate(ITEMS)}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], env=variables, capture_output=True, check=False
    )
    printed = done.stdout.decode().split("|\n")[:-1]
    wanted = [TEXTS[text].replace("{}", item).removesuffix("|") for item, text in cases]
    assert printed == wanted
    assert (done.returncode, done.stderr) == (0, b"")
