"""Words and values that names and fields should never be, and how to put them into anything."""

from collections.abc import Mapping
from random import Random
from typing import Any

#: By what they would do if somebody were careless.
WORDS: Mapping[str, str] = {
    "shell": "$(touch pwned)`touch pwned`;touch pwned #",
    "quotes": "a'b\"c\\",
    "option": "--config=/etc/passwd",
    "html": "</title><script>alert(1)</script><img src=x onerror=alert(1)>",
    "terminal": "\x1b]0;pwned\x07\x1b[2J\x1b[31mred",
    "c1": "\x9b31m\x85\x90q",
    "sql": "x'; DROP TABLE jobs; --",
    "path": "../../../../tmp/pwned",
    "absolute": "/etc/passwd",
    "dots": "..",
    "home": "~/.ssh/id_rsa",
    "newline": "a\nHost *\n  ProxyCommand touch pwned\n",
    "return": "a\rb",
    "direction": "abc\u202etxt.exe\u2066",
    "separator": "a\u2028b\u2029c",
    "full-width": "．．／ｅｔｃ",  # which some programs turn into ../etc
    "combining": "e" + "\u0301" * 50,
    "invisible": "gp\u200bt",
    "nul": "a\0b",
    "half": "a\ud800b",
    "bytes": "a\udcff\udc9bb",
    "long": "x" * 100_000,
    "empty": "",
    "blank": " \t ",
    "format": "{0.__class__}%s%n%(x)s",
    "template": "{{7*7}}${jndi:ldap://x}",
    "label": 'a"} 1\nevil{x="',
    "csv": '=cmd|"/c calc"!A1',
}


def nest_value(depth: int, *, named: bool) -> Any:
    """A value in as many lists or objects."""
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value} if named else [value]
    return value


#: What a field of JSON seldom has.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "0", "null", "READY", "PREEMPTED", "x", [], {}, [[]], [None],
    {"": None}, ["a"] * 2000, {"error": {"code": 5, "message": "not found"}}, *WORDS.values(),
    nest_value(450, named=False), nest_value(900, named=True),
)  # fmt: skip


def mutate(content: Any, dice: Random) -> Any:
    """The same with one place changed, wherever it is."""
    if isinstance(content, dict) and content and dice.random() < 0.8:
        name = dice.choice(sorted(content, key=str))
        return {**content, name: mutate(content[name], dice)}
    if isinstance(content, list) and content and dice.random() < 0.8:
        at = dice.randrange(len(content))
        return [*content[:at], mutate(content[at], dice), *content[at + 1 :]]
    turn = dice.randrange(5)
    if isinstance(content, dict) and turn == 0:
        return {**content, dice.choice(list(WORDS.values())): dice.choice(VALUES)}
    if isinstance(content, dict) and content and turn == 1:
        gone = dice.choice(sorted(content, key=str))
        return {name: value for name, value in content.items() if name != gone}
    if isinstance(content, list) and content and turn == 2:
        return content * 3
    if isinstance(content, int) and turn < 3:
        return content + dice.choice([-1, 1, 1000])
    if isinstance(content, str) and turn < 2:
        at = dice.randrange(len(content) + 1)
        return content[:at] + dice.choice(list(WORDS.values())) + content[at:]
    return dice.choice(VALUES)


def mutate_bytes(piece: bytes, dice: Random) -> bytes:
    """A few of them changed, inserted, doubled or lost."""
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(piece) + 1)
        end = at + dice.randrange(1, 40)
        odd = dice.randbytes(dice.randrange(0, 9))
        piece = dice.choice(
            [piece[:at] + odd + piece[end:], piece[:at], piece[:end] + piece[at:], odd + piece]
        )
    return piece
