"""Writes what the documentation site is built from: every page, and every source that one links to.

Pages keep their text. Only links change: README.md is the start page, docs/ the root, and a linked
source file becomes a page of its own, because the site has no repository beside it.
"""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

CONFIG = "zensical.toml"
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/*.md", "bench/**/*.md")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^ *(```|~~~)")
CODE = re.compile(r"(`+[^`]*`+)")
INDEX = PurePosixPath("docs/pages.md")
#: The rows of the table in the index, and what the site calls them.
GROUPS = {
    "learn": "Learn",
    "do": "How to",
    "come from": "Come from",
    "look up": "Reference",
    "understand": "Understand",
    "contribute": "Contribute",
}


@dataclass(kw_only=True)
class SiteSource:
    """The repository, and where the pages of the site go."""

    root: Path
    into: Path
    linked: set[PurePosixPath] = field(default_factory=set)  #: sources that pages link to

    def write(self) -> None:
        """Write the folder anew."""
        shutil.rmtree(self.into, ignore_errors=True)
        for page in self.pages():
            place = self.into / "pages" / site_path(page)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self.rewrite_page(page))
        shutil.copytree(self.root / "docs/images", self.into / "pages/images")
        for source in sorted(self.linked):
            self.write_source(source)
        icon = self.root / "src/tpuherd/web/static/icon.svg"
        shutil.copy(icon, self.into / "pages/images/icon.svg")
        shutil.copy(self.root / "docs/site.css", self.into / "pages/site.css")
        config = (self.root / "docs" / CONFIG).read_text()
        (self.into / CONFIG).write_text(config.replace("nav = []", f"nav = {self.navigation()}"))

    def pages(self) -> list[PurePosixPath]:
        found = {page for pattern in PAGES for page in self.root.glob(pattern)}
        return sorted(PurePosixPath(page.relative_to(self.root)) for page in found)

    def rewrite_page(self, page: PurePosixPath) -> str:
        """Return its text with links as they are on the site; code stays as it is."""
        lines, is_code = [], False
        for line in (self.root / page).read_text().splitlines():
            is_fence = FENCE.match(line) is not None
            is_code ^= is_fence
            if not is_code and not is_fence:
                parts = CODE.split(line) if "](" not in line else [line]
                line = "".join(self.rewrite_links(part, page) for part in parts)
            lines.append(line)
        return "\n".join(lines) + "\n"

    def rewrite_links(self, text: str, page: PurePosixPath) -> str:
        return LINK.sub(lambda found: f"{found[1]}{self.site_link(found[2], page)}{found[3]}", text)

    def site_link(self, target: str, page: PurePosixPath) -> str:
        """Return a link to the same thing from this page on the site."""
        name, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not name:
            return target
        there = normal_path(page.parent / name)
        if there.suffix != ".md" and there.parts[:2] != ("docs", "images"):
            self.linked.add(there)
        here = site_path(page).parent
        return f"{relative_path(site_path(there), here)}{mark}{anchor}"

    def write_source(self, source: PurePosixPath) -> None:
        """Write a page with the text of a file, or the names in a folder."""
        file, place = self.root / source, self.into / "pages" / site_path(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        head = f"---\ntitle: {source.name}\nsearch:\n  exclude: true\n---\n\n# {source}\n\n"
        if file.is_dir():
            names = sorted(one.name + "/" * one.is_dir() for one in file.iterdir())
            rows = (f"- `{name}`" for name in names if name[0] not in "._")
            place.write_text(head + "\n".join(rows) + "\n")
            return
        text = file.read_text()
        fence = "`" * (1 + max([2, *(len(run) for run in re.findall(r"`+", text))]))
        # Colors would take as long as all other pages together.
        place.write_text(f"{head}{fence}text\n{text.rstrip()}\n{fence}\n")

    def navigation(self) -> str:
        """Return the menu: the table of the index, as TOML."""
        groups = [f'{{ "tpuherd" = {json.dumps("index.md")} }}']
        text = (self.root / INDEX).read_text()
        for row, title in GROUPS.items():
            found = re.search(rf"^\| {row} \| (.+) \|$", text, re.M)
            assert found is not None, f"{INDEX} has no row {row} in its table"
            pages = ", ".join(menu_entries(found[1], are_names=row == "come from"))
            groups.append(f'{{ "{title}" = [{pages}] }}')
        return "[\n  " + ",\n  ".join(groups) + ",\n]"


def menu_entries(row: str, *, are_names: bool) -> Iterator[str]:
    """Yield the links of a row of the table as entries of the menu."""
    for title, target in re.findall(r"\[([^\]]+)\]\(([^)#\s]+)\)", row):
        if not are_names:
            title = title.capitalize() if len(title) > 4 and title.isupper() else title
            title = title[0].upper() + title[1:]
        place = str(site_path(normal_path(INDEX.parent / target)))
        yield f"{{ {json.dumps(title)} = {json.dumps(place)} }}"


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Return where something of the repository is on the site."""
    parts = path.parts[1:] if path.parts[:1] == ("docs",) and len(path.parts) > 1 else path.parts
    if path.parts[:2] == ("docs", "images"):
        return PurePosixPath(*parts)
    if path.suffix != ".md":
        name = path.name if path.suffix else f"{path.name}/index"
        return PurePosixPath("source", path.parent, f"{name}.md")
    if parts[-1] == "README.md":
        return PurePosixPath(*parts[:-1], "index.md")
    return PurePosixPath(*parts[:-1], parts[-1].lower() if len(path.parts) == 1 else parts[-1])


def normal_path(path: PurePosixPath) -> PurePosixPath:
    """Return a path without `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def relative_path(path: PurePosixPath, folder: PurePosixPath) -> str:
    """Return the way from a folder to a path."""
    shared = 0
    for one, other in zip(path.parts, folder.parts, strict=False):
        if one != other:
            break
        shared += 1
    ups = [".."] * (len(folder.parts) - shared)
    return "/".join([*ups, *path.parts[shared:]])


def main(root: Path) -> None:
    SiteSource(root=root, into=root / "build/site").write()


if __name__ == "__main__":
    main(Path(__file__).parents[1])
