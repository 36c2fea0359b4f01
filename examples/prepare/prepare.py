"""Packs a folder or bucket into shards, on as many nodes as there are: python3 prepare.py FROM TO.

Which sample goes into which shard depends on the list of files alone, and that list is written
down before the first shard. Nodes only decide who packs a shard first. So every file stands in one
shard once, whatever dies, comes back, or is scaled away. A shard is done when its mark is there,
and that is written last.
"""

import argparse
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from tpuherd_host import train
from tpuherd_host.train.lazy_import import LazyModule, MissingPackage
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.shard_cache import SIZES
from tpuherd_host.train.storage import Place, Unreachable, place
from tpuherd_host.train.tar_shards import split_name

PLAN, MARKS = "plan.json", "done/"
READERS = 32  #: samples that are read at once: a bucket lets one wait
google_crc32c = LazyModule("google_crc32c", "google-crc32c")
array_record = LazyModule("array_record.python.array_record_module", "array-record")

Sample = tuple[str, ...]  #: the names of its files
Files = Mapping[str, bytes]  #: of one sample, by their endings: jpg, txt, cls


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that decides what stands where."""

    form: str
    classes: tuple[str, ...]  #: folders whose place is the label; () where none is wanted
    shards: tuple[tuple[Sample, ...], ...]
    id: str = ""  #: what each mark bears; another plan has another one

    def name(self, shard: int) -> str:
        """Of a shard's file."""
        return f"shard-{shard:06}.{self.form}"


def main() -> None:
    """Pack what is this node's, then whatever is left."""
    asked = arguments()
    source, target = place(asked.source), place(asked.target)
    try:
        worker, workers = me(os.environ)
        plan = agreed(target, lambda: planned(source.names(), asked))
        same(plan, asked)
        print(f"{len(plan.shards)} shards; packing as {worker + 1} of {workers}", flush=True)
        for shard in turns(len(plan.shards), worker, workers):
            pack(plan, shard, source, target)
        # Who reads them need not count: train.Shards and others look for this file.
        sizes = {plan.name(at): len(samples) for at, samples in enumerate(plan.shards)}
        target.write(SIZES, [json.dumps(sizes).encode()])
        print(f"finished: {told(plan, target)}", flush=True)
    except (InvalidSetup, MissingPackage) as error:
        train.refuse(str(error))
    except Unreachable as error:  # it may be reached again: herd tries once more
        sys.exit(str(error))


def arguments() -> argparse.Namespace:
    """What can be said on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a folder, or gs://…")
    parser.add_argument("target", help="a folder that all nodes see, or gs://…")
    parser.add_argument("--samples", type=int, default=1000, help="of a shard")
    parser.add_argument("--form", choices=sorted(FORMS), default="tar")
    parser.add_argument("--classes", action="store_true", help="add the first folder's number")
    return parser.parse_args()


def me(environ: Mapping[str, str]) -> tuple[int, int]:
    """Which worker this is, of how many: each host of each slot."""
    slot, slots = (int(environ.get(name, usual)) for name, usual in
                   (("HERD_SLOT", "0"), ("HERD_SLOTS", "1")))  # fmt: skip
    host, hosts = (int(environ.get(name, usual)) for name, usual in
                   (("HERD_WORKER", "0"), ("HERD_WORKERS", "1")))  # fmt: skip
    return slot * hosts + host, max(slots, slot + 1) * hosts


def planned(names: Sequence[str], asked: argparse.Namespace) -> Plan:
    """Samples in an order that has nothing to do with their names, cut into shards."""
    samples = sorted(samples_of(names), key=lambda one: blake2b(one[0].encode()).digest())
    if not samples:
        raise InvalidSetup(f"there is nothing to pack in {asked.source}")
    if asked.samples < 1:
        raise InvalidSetup("a shard has at least one sample: --samples 1000")
    classes = sorted({one[0].partition("/")[0] for one in samples}) if asked.classes else []
    cuts = range(0, len(samples), asked.samples)
    shards = tuple(tuple(samples[at : at + asked.samples]) for at in cuts)
    return Plan(form=asked.form, classes=tuple(classes), shards=shards)


def samples_of(names: Sequence[str]) -> Iterator[Sample]:
    """Files that differ in their endings only are one sample, as webdataset has it."""
    seen = [one for one in names if not any(part.startswith(".") for part in one.split("/"))]
    for key, files in groupby(sorted(seen, key=split_name), key=lambda one: split_name(one)[0]):
        sample = tuple(files)
        kinds = [split_name(name)[1] for name in sample]
        if "" in kinds:
            raise InvalidSetup(f"{sample[kinds.index('')]} has no ending, such as .jpg")
        if len({*kinds}) < len(kinds):
            raise InvalidSetup(f"two files of {key} have the same ending")
        yield sample


def agreed(target: Place, make: Callable[[], Plan]) -> Plan:
    """The plan that is written down, by whoever came first."""
    if PLAN not in target.names(PLAN):
        plan = make()
        wanted = {"form": plan.form, "classes": plan.classes, "shards": plan.shards}
        target.write(PLAN, [json.dumps(wanted).encode()])
    text = target.read(PLAN)
    said = json.loads(text)
    return Plan(
        form=said["form"],
        classes=tuple(said["classes"]),
        shards=tuple(tuple(map(tuple, shard)) for shard in said["shards"]),
        id=sha256(text).hexdigest()[:16],
    )


def same(plan: Plan, asked: argparse.Namespace) -> None:
    """What is asked for now is what was begun with."""
    size = len(plan.shards[0])
    fits = size == asked.samples or (len(plan.shards) == 1 and size < asked.samples)
    if not fits or plan.form != asked.form or bool(plan.classes) != asked.classes:
        classes = " --classes" if plan.classes else ""
        raise InvalidSetup(
            f"{asked.target} was begun with --form {plan.form} --samples {size}{classes}: "
            "say the same, or take an empty place"
        )


def turns(shards: int, worker: int, workers: int) -> Iterator[int]:
    """One's own shards; then those of the others from the end: one may be gone for good."""
    yield from range(worker, shards, workers)
    yield from (one for one in reversed(range(shards)) if one % workers != worker)


def marked(plan: Plan, target: Place, shard: int) -> bool:
    """Whether a shard is done."""
    try:
        mark = json.loads(target.read(f"{MARKS}{plan.name(shard)}.json"))
    except FileNotFoundError:
        return False
    if mark["plan"] != plan.id:
        raise InvalidSetup(f"{target.location} has shards of another plan: take an empty place")
    return True


def pack(plan: Plan, shard: int, source: Place, target: Place) -> None:
    """One shard that is not done; when it is there, its mark."""
    if marked(plan, target, shard):
        return
    with ThreadPoolExecutor(READERS) as pool:
        read = pool.map(lambda one: (key(one), contents(plan, one, source)), plan.shards[shard])
        samples = list(read)
    packed = FORMS[plan.form](samples)
    target.write(plan.name(shard), [packed])
    mark = {"plan": plan.id, "samples": len(samples), "bytes": len(packed)}
    target.write(f"{MARKS}{plan.name(shard)}.json", [json.dumps(mark).encode()])
    print(f"{plan.name(shard)}: {len(samples)} samples, {len(packed):,} bytes", flush=True)


def told(plan: Plan, target: Place) -> str:
    """What there is in the end, by the marks."""
    there = {one.removeprefix(MARKS) for one in target.names(MARKS)}
    missing = [name for name in map(plan.name, range(len(plan.shards)))
               if f"{name}.json" not in there]  # fmt: skip
    if missing:
        raise InvalidSetup(f"{len(missing)} marks are gone from {target.location}: start it again")
    return f"{sum(map(len, plan.shards))} samples in {len(plan.shards)} shards"


def key(sample: Sample) -> str:
    """What a sample is called."""
    return split_name(sample[0])[0]


def contents(plan: Plan, sample: Sample, source: Place) -> Files:
    """A sample's files as they are packed. To make pictures smaller, this is where."""
    try:
        files = {split_name(name)[1]: source.read(name) for name in sample}
    except FileNotFoundError as error:
        raise InvalidSetup(f"a file of the plan is gone ({error}): take an empty place") from error
    if plan.classes:
        files["cls"] = str(plan.classes.index(sample[0].partition("/")[0])).encode()
    return files


def as_tar(samples: Sequence[tuple[str, Files]]) -> bytes:
    """A tar as webdataset and tpuherd_host.train.Shards read it; the same bytes each time."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, files in samples:
            for kind, content in files.items():
                entry = tarfile.TarInfo(f"{name}.{kind}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def as_tfrecord(samples: Sequence[tuple[str, Files]]) -> bytes:
    """Each record with its length, and a checksum of both."""
    found: list[bytes] = []
    for name, files in samples:
        record = example({"__key__": name.encode(), **files})
        length = len(record).to_bytes(8, "little")
        found += [length, checksum(length), record, checksum(record)]
    return b"".join(found)


def checksum(content: bytes) -> bytes:
    """CRC-32C, turned round and moved, as the format has it."""
    crc = int(google_crc32c.value(content))
    turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (turned + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def as_arrayrecord(samples: Sequence[tuple[str, Files]]) -> bytes:
    """Records that Grain reads by number; the library writes to a file only."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard"
        writer = array_record.ArrayRecordWriter(str(path), "group_size:1")
        for name, files in samples:
            writer.write(example({"__key__": name.encode(), **files}))
        writer.close()
        return path.read_bytes()


def example(features: Files) -> bytes:
    """A tf.train.Example of bytes: what tf.data, TFDS and Grain parse."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, content))))
        for name, content in sorted(features.items())
    ]
    return field(1, b"".join(entries))


def field(number: int, content: bytes) -> bytes:
    """One field of a protocol buffer, with its length."""
    length, rest = b"", len(content)
    while rest > 0x7F:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


FORMS: Mapping[str, Callable[[Sequence[tuple[str, Files]]], bytes]] = {
    "tar": as_tar,
    "tfrecord": as_tfrecord,
    "arrayrecord": as_arrayrecord,
}

if __name__ == "__main__":
    main()
