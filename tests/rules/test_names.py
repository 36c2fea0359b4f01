"""Names say what a thing does or is, and mean one thing in a package tree."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
TREES = ("tpuherd", "tpuherd_host", "tpuherd_sim")

#: Verbs that say enough alone, and words that others impose (ports, click, asyncio, files).
KNOWN = set(
    """
    plan run main open close read write load save parse send stop start get put wait ship
    add remove pop clear append copy seek flush fileno cancel join acquire release submit connect
    disconnect drain feed decode encode items keys values update render
    """.split()
)
ONE_WORD_SHARE = 0.08  #: of a tree's functions may have one word that is not in the list above
MODULES_TWICE = {"__init__", "__main__", "errors", "model"}


def functions(tree: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function and method, but properties, click's callbacks and what is in a function."""
    for file in sorted((SRC / tree).rglob("*.py")):
        waiting: list[ast.AST] = [ast.parse(file.read_text())]
        while waiting:
            for node in ast.iter_child_nodes(waiting.pop()):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
                    if not any(word in marks for word in ("property", "command", "group")):
                        yield f"src/{file.relative_to(SRC)}:{node.lineno}: `{node.name}`", node
                else:
                    waiting.append(node)


def test_functions_have_verbs_or_nouns_of_two_words() -> None:
    for tree in TREES:
        found = [(where, node.name) for where, node in functions(tree) if node.name[:2] != "__"]
        short = [
            where
            for where, name in found
            if "_" not in name.strip("_") and name.strip("_") not in KNOWN
        ]
        share = len(short) / len(found)
        advice = f"{share:.1%} of {tree} have one word; name a new one by verb and object, too:"
        assert share <= ONE_WORD_SHARE, "\n".join([advice, *short])


def test_no_function_is_a_bare_participle() -> None:
    odd = set(
        "told said shown seen made done given held heard lived wished meant kept begun".split()
    )
    found = [
        where for tree in TREES for where, node in functions(tree) if node.name.strip("_") in odd
    ]
    advice = "is named by a bare participle; name it by a verb, e.g. `find_lease`"
    assert not found, "\n".join(f"{where} {advice}" for where in found)


def test_a_class_name_means_one_thing_in_a_tree() -> None:
    for tree in TREES:
        places = defaultdict(list)
        for file in sorted((SRC / tree).rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"src/{file.relative_to(SRC)}:{node.lineno}")
        twice = show_twice(places)
        assert not twice, f"classes of one name; rename one: {twice}"


def show_twice(places: dict[str, list[str]]) -> str:
    """Return which names stand in several files, with these."""
    twice = [f"{name} in {' and '.join(where)}" for name, where in places.items() if where[1:]]
    return "; ".join(twice)


def test_a_module_name_means_one_thing_in_a_tree() -> None:
    """Commands in cli/ have the name of what they do elsewhere."""
    for tree in TREES:
        places = defaultdict(list)
        for file in sorted((SRC / tree).rglob("*.py")):
            if "cli" not in file.parts and file.stem not in MODULES_TWICE:
                places[file.stem].append(f"src/{file.relative_to(SRC)}")
        twice = show_twice(places)
        assert not twice, f"modules of one name; rename one: {twice}"
