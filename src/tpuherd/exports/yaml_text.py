"""Writes manifests as YAML, with a comment where a user must fill something in."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

IMAGE, QUEUE = "FILL-IN-IMAGE", "fill-in-queue"
COMMENTS = {
    IMAGE: "the image with your code and its packages",
    QUEUE: "the LocalQueue of your namespace: kubectl get localqueues",
}
#: Texts that PyYAML leaves bare, and Kubernetes reads as numbers or as true and false.
NO_TEXT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[oOxXbB][0-9a-fA-F_]+|[yYnN]"
)


def yaml_text(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Return the manifests as one file, in the order of their keys as given."""
    import yaml  # noqa: PLC0415  # slow to import

    class Dumper(yaml.SafeDumper):
        """Text of several lines is written as lines; equal values are written out again."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else "'" if NO_TEXT.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, write_text)
    pages = (
        yaml.dump(
            one, Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True,
            width=10_000,
        )
        for one in manifests
    )  # fmt: skip
    return "---\n".join(map(add_comments, pages))


def add_comments(page: str) -> str:
    for word, comment in COMMENTS.items():
        page = re.sub(rf"(?m)^(.*: {word})$", rf"\1  # fill in: {comment}", page)
    return page
