"""`Job`: the fields of a job file in Python, checked when it is created."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from tpuherd.errors import InvalidInput
from tpuherd.job_fields import JobFields
from tpuherd.jobfile import read_job
from tpuherd.jobfile.yaml_with_lines import Mistake, YamlDocument, read_yaml


class Job:
    """What a user submits.

    Job(name="gpt", accelerator="v4-32", workdir=".", run="python3 train.py")
    Job.load("job.yaml")

    The fields are those of a job file (docs/reference/job.md). All mistakes are raised together, as
    one InvalidInput. Jobs with the same fields are equal.
    """

    def __init__(self, **fields: Unpack[JobFields]) -> None:
        self._page = YamlDocument(value={name: it for name, it in fields.items() if it is not None})
        self._spec = parse_page(self._page, "")
        self.base = Path()  #: the folder that its paths are relative to

    @classmethod
    def load(cls, path: str | Path) -> "Job":
        """Load a job file."""
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{file} can't be read ({error})") from error
        found = read_yaml(text)
        parse_page(found, str(file))
        job = cls(**found.value)
        job._page, job.base = found, file.parent
        job._spec = parse_page(found, str(file))
        return job

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def document(self) -> Mapping[str, Any]:
        """Its fields as JSON, without defaults."""
        return read_job.job_document(self._spec)

    @property
    def page(self) -> YamlDocument:
        """A new document, to collect mistakes that only a project can show."""
        return YamlDocument(
            value=dict(self._page.value), lines=dict(self._page.lines), texts=dict(self._page.texts)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec.name)

    def __repr__(self) -> str:
        return f"Job({', '.join(f'{name}={value!r}' for name, value in self.document.items())})"


def parse_page(page: YamlDocument, file: str) -> read_job.JobSpec:
    """Return the job; InvalidInput with all mistakes."""
    found = read_job.read_document(page)
    if isinstance(found, read_job.JobSpec):
        return found
    raise mistakes_error(found, file)


def mistakes_error(mistakes: list[Mistake], file: str) -> InvalidInput:
    """Return one error that lists all mistakes."""
    return InvalidInput("; ".join(one.format_line(file) for one in mistakes))
