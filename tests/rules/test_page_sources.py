"""The page's JavaScript, CSS and HTML: text stays text, nothing comes from elsewhere."""

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "tpuherd" / "web" / "static"
SOURCES = sorted(path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html"})
MOST_LINES = 400

#: What may not be in a source, and why.
BANNED = {
    r"\b(inner|outer)HTML\b|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|\bDOMParser\b|\bsrcdoc\b": "text made into markup can be injected; make elements",
    r"\beval\s*\(|\bnew Function\b|set(?:Timeout|Interval)\(\s*['\"`]": "text made into code;"
    " pass a function",
    r"""(?:src|href|url\(|import\s*\(|from)\s*=?\s*["'(]*\s*(?:https?:)?//""": "a foreign"
    " request; put the file into static/",
    r"@import\b": "a style that the page does not list; link it in index.html",
}


def name_source(path: Path) -> str:
    return str(path.relative_to(STATIC))


@pytest.mark.parametrize("path", SOURCES, ids=name_source)
def test_sources_make_no_markup_no_code_and_no_foreign_request(path: Path) -> None:
    text = path.read_text("utf-8")
    found = [
        f"static/{name_source(path)}:{text.count(chr(10), 0, match.start()) + 1}:"
        f" {match.group()}: {why}"
        for pattern, why in BANNED.items()
        for match in re.finditer(pattern, text)
    ]
    assert not found, "; ".join(found)
    lines = len(text.splitlines())
    assert lines <= MOST_LINES, f"static/{name_source(path)}: over {MOST_LINES} lines; split it"


def test_the_bans_find_what_they_ban() -> None:
    samples = (
        "node.innerHTML = text",
        "setTimeout('go()', 1)",
        'import "x" from "https://cdn.example/x.js"',
        '<script src="//cdn.example/x.js">',
        "background: url(http://example/x.png)",
        "@import 'other.css'",
    )
    for sample in samples:
        assert any(re.search(pattern, sample) for pattern in BANNED), sample


def test_html_has_neither_inline_scripts_nor_inline_styles() -> None:
    text = (STATIC / "index.html").read_text("utf-8")
    found = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style\b|\sstyle=|\son\w+=", text)
    assert not found, f"static/index.html has {found}; move it to a .js or .css file"


def test_what_is_imported_or_linked_is_there() -> None:
    """A module that is not there would leave a page blank."""
    missing = []
    for path in SOURCES:
        text = path.read_text("utf-8")
        names = re.findall(r"""(?:\bfrom|\bimport)\s+["'](\.[^"']+)["']""", text)
        if path.suffix == ".html":
            names += re.findall(r"""\b(?:src|href)="([\w./-]+\.(?:js|css|svg))\"""", text)
        gone = [one for one in names if not (path.parent / one).exists()]
        missing += [f"{name_source(path)}: {one}" for one in gone]
    assert not missing, f"these name files that are not in static/; correct them: {missing}"


def find_imports(start: str) -> set[str]:
    """The module and all that it imports, directly or not."""
    found: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        path = STATIC / name
        text = path.read_text("utf-8")
        for one in re.findall(r"""(?:\bfrom|\bimport)\s+"(\.[^"]+)\"""", text):
            todo.append(name_source((path.parent / one).resolve()))
    return found


def test_what_the_first_page_needs_is_asked_for_at_once() -> None:
    """Else a browser finds each module only after it has read the one that imports it."""
    text = (STATIC / "index.html").read_text("utf-8")
    links = set(re.findall(r'rel="modulepreload" href="([^"]+)"', text))
    needed = (find_imports("app.js") | find_imports("pages/overview.js")) - {"app.js"}
    odd = f"add {sorted(needed - links)}, remove {sorted(links - needed)}"
    assert links == needed, f"the modulepreload links of static/index.html: {odd}"
