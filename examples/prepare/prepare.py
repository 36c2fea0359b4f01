"""Packs a folder or bucket into shards, on any number of nodes: python3 prepare.py FROM TO.

Which sample goes into which shard depends only on the list of files, which is stored before the
first shard is written. Nodes only decide who packs a shard first. So every file is in exactly one
shard, whatever dies, returns, or is scaled down. A shard is done when its marker exists; that is
written last.
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
READERS = 32  #: samples that are read at once, because buckets are slow to answer
google_crc32c = LazyModule("google_crc32c", "google-crc32c")
array_record = LazyModule("array_record.python.array_record_module", "array-record")

Sample = tuple[str, ...]  #: the names of its files
Files = Mapping[str, bytes]  #: of one sample, by extension: jpg, txt, cls


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything that decides which shard contains what."""

    form: str
    classes: tuple[str, ...]  #: folders whose index is the label; () without labels
    shards: tuple[tuple[Sample, ...], ...]
    id: str = ""  #: is in each marker; another plan has another id

    def name(self, shard: int) -> str:
        """Return the name of a shard's file."""
        return f"shard-{shard:06}.{self.form}"


def main() -> None:
    """Pack this node's shards, then those that others have not packed."""
    asked = arguments()
    source, target = place(asked.source), place(asked.target)
    try:
        worker, workers = me(os.environ)
        plan = agreed(target, lambda: planned(source.names(), asked))
        same(plan, asked)
        print(f"{len(plan.shards)} shards; packing as {worker + 1} of {workers}", flush=True)
        for shard in turns(len(plan.shards), worker, workers):
            pack(plan, shard, source, target)
        # Readers need not count: train.Shards and others look for this file.
        sizes = {plan.name(at): len(samples) for at, samples in enumerate(plan.shards)}
        target.write(SIZES, [json.dumps(sizes).encode()])
        print(f"finished: {told(plan, target)}", flush=True)
    except (InvalidSetup, MissingPackage) as error:
        train.refuse(str(error))
    except Unreachable as error:  # it may answer later: herd retries
        sys.exit(str(error))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a folder, or gs://…")
    parser.add_argument("target", help="a folder that all nodes share, or gs://…")
    parser.add_argument("--samples", type=int, default=1000, help="samples per shard")
    parser.add_argument("--form", choices=sorted(FORMS), default="tar")
    parser.add_argument("--classes", action="store_true", help="add the first folder's number")
    return parser.parse_args()


def me(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of this worker and of all workers: each host of each slot is one."""
    slot, slots = (int(environ.get(name, usual)) for name, usual in
                   (("HERD_SLOT", "0"), ("HERD_SLOTS", "1")))  # fmt: skip
    host, hosts = (int(environ.get(name, usual)) for name, usual in
                   (("HERD_WORKER", "0"), ("HERD_WORKERS", "1")))  # fmt: skip
    return slot * hosts + host, max(slots, slot + 1) * hosts


def planned(names: Sequence[str], asked: argparse.Namespace) -> Plan:
    """Return the samples in an order independent of their names, cut into shards."""
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
    """Group files that differ only in their extension into samples, as webdataset does."""
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
    """Return the stored plan; the first worker stores it."""
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
    """Refuse options that differ from those of the stored plan."""
    size = len(plan.shards[0])
    fits = size == asked.samples or (len(plan.shards) == 1 and size < asked.samples)
    if not fits or plan.form != asked.form or bool(plan.classes) != asked.classes:
        classes = " --classes" if plan.classes else ""
        raise InvalidSetup(
            f"{asked.target} was started with --form {plan.form} --samples {size}{classes}: "
            "use the same options, or an empty destination"
        )


def turns(shards: int, worker: int, workers: int) -> Iterator[int]:
    """Yield this worker's shards, then those of the others from the end: one may never return."""
    yield from range(worker, shards, workers)
    yield from (one for one in reversed(range(shards)) if one % workers != worker)


def marked(plan: Plan, target: Place, shard: int) -> bool:
    """Whether a shard is done."""
    try:
        mark = json.loads(target.read(f"{MARKS}{plan.name(shard)}.json"))
    except FileNotFoundError:
        return False
    if mark["plan"] != plan.id:
        raise InvalidSetup(
            f"{target.location} has shards of another plan: use an empty destination"
        )
    return True


def pack(plan: Plan, shard: int, source: Place, target: Place) -> None:
    """Write one shard, and then its marker."""
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
    """Summarize the result from the markers."""
    there = {one.removeprefix(MARKS) for one in target.names(MARKS)}
    missing = [name for name in map(plan.name, range(len(plan.shards)))
               if f"{name}.json" not in there]  # fmt: skip
    if missing:
        raise InvalidSetup(f"{len(missing)} marks are gone from {target.location}: start it again")
    return f"{sum(map(len, plan.shards))} samples in {len(plan.shards)} shards"


def key(sample: Sample) -> str:
    """Return the name of a sample."""
    return split_name(sample[0])[0]


def contents(plan: Plan, sample: Sample, source: Place) -> Files:
    """Return a sample's files as they are packed. Shrink pictures here."""
    try:
        files = {split_name(name)[1]: source.read(name) for name in sample}
    except FileNotFoundError as error:
        raise InvalidSetup(
            f"a file of the plan no longer exists ({error}): use an empty destination"
        ) from error
    if plan.classes:
        files["cls"] = str(plan.classes.index(sample[0].partition("/")[0])).encode()
    return files


def as_tar(samples: Sequence[tuple[str, Files]]) -> bytes:
    """Return a tar for webdataset and tpuherd_host.train.Shards; always the same bytes."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, files in samples:
            for kind, content in files.items():
                entry = tarfile.TarInfo(f"{name}.{kind}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def as_tfrecord(samples: Sequence[tuple[str, Files]]) -> bytes:
    """Return each record with its length, and checksums of both."""
    found: list[bytes] = []
    for name, files in samples:
        record = example({"__key__": name.encode(), **files})
        length = len(record).to_bytes(8, "little")
        found += [length, checksum(length), record, checksum(record)]
    return b"".join(found)


def checksum(content: bytes) -> bytes:
    """Return the CRC-32C, rotated and offset as the format requires."""
    crc = int(google_crc32c.value(content))
    turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (turned + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def as_arrayrecord(samples: Sequence[tuple[str, Files]]) -> bytes:
    """Return records that Grain reads by number; the library only writes files."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard"
        writer = array_record.ArrayRecordWriter(str(path), "group_size:1")
        for name, files in samples:
            writer.write(example({"__key__": name.encode(), **files}))
        writer.close()
        return path.read_bytes()


def example(features: Files) -> bytes:
    """Return a tf.train.Example of bytes, for tf.data, TFDS and Grain."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, content))))
        for name, content in sorted(features.items())
    ]
    return field(1, b"".join(entries))


def field(number: int, content: bytes) -> bytes:
    """Return one field of a protocol buffer, with its length."""
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
