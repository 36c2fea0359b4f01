"""The job's field that names the image of the container in which its command runs."""

import re
from typing import Any

from tpuherd.jobfile.value_types import ReportMistake, ValueType, show_value

PREFIX = "docker://"
HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?"
PATH = r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
VERSION = r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
NAME = re.compile(HOST + PATH + VERSION)
NAME_MAX = 500
IMAGE_MEANS = (
    "Run the command in a container of this image, on every host: `docker://` and the name that"
    " `docker pull` takes. It is pulled before the attempt; setup runs on the host:"
    " docs/howto/containers.md."
)


def read_image(value: Any, wrong: ReportMistake) -> str | None:
    """Accept docker:// and a name."""
    shown = show_value(value)
    if not isinstance(value, str):
        wrong(f"should be an image such as {PREFIX}python:3.12, not {shown}", ())
    elif not value.startswith(PREFIX):
        meant = f"write {PREFIX}{value} for a container" if is_name(value) else f"use {PREFIX}NAME"
        wrong(f"{shown} has no {PREFIX}: {meant}, or runtime for the image of the TPU VM", ())
    elif not is_name(value.removeprefix(PREFIX)):
        wrong(f"{shown} is not the name of an image, such as {PREFIX}python:3.12", ())
    else:
        return value
    return None


def is_name(text: str) -> bool:
    return len(text) <= NAME_MAX and NAME.fullmatch(text) is not None


def image_name(image: str) -> str:
    """python:3.12 for docker://python:3.12"""
    return image.removeprefix(PREFIX)


IMAGE = ValueType(
    read=read_image, schema={"type": "string", "pattern": f"^{PREFIX}{NAME.pattern}$"}
)
