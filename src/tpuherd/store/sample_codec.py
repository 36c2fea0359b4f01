"""Packs columns of numbers into few bytes, without loss. Pure.

A chunk is one table: a time per row, and columns whose values may be missing. Whole numbers and
numbers with one decimal become differences, divided by their greatest common divisor, in the
smallest integers that hold them; other numbers stay floating-point. The bytes are stored by their
rank, since the high ones hardly change, and compressed by zlib. A column has one list of values,
or three: the lowest, mean and highest of a span.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, compress, repeat
from math import gcd
from operator import mul, sub

import msgspec

Values = Sequence[float | None]
#: The values of a column: one list, or the lowest, mean and highest.
Column = Sequence[Values]

CONSTANT, WHOLE, SINGLE, DOUBLE = range(4)
HEAD = struct.Struct("<BBBqq")  #: kind, denominator, letter of the integers, unit, first value
WIDTHS = (("b", 7), ("h", 15), ("i", 31), ("q", 63))
EXACT_MAX = 1 << 53  #: larger floats skip whole numbers
ROWS_MAX = 100_000
TIMES = ""  #: the column of times


class BadChunk(ValueError):
    """Bytes that are no chunk."""


def pack_chunk(times: Sequence[float], columns: Mapping[str, Column]) -> bytes:
    """Pack a table. Times are rounded to a tenth of a second."""
    table = {TIMES: [pack_numbers([round(at, 1) for at in times])]}
    for name, column in columns.items():
        present = bytes(value is not None for value in column[0])
        full = all(present)
        lists = [[one for one in values if one is not None] for values in column]
        if not lists[0]:
            continue
        if len(lists) > 1 and all(one == lists[0] for one in lists):
            lists = lists[:1]
        table[name] = [b"" if full else pack_bits(present), *map(pack_numbers, lists)]
    return zlib.compress(msgspec.msgpack.encode((len(times), table)), 6)


def unpack_chunk(
    chunk: bytes, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[list[float], dict[str, list[list[float | None]]]]:
    """Return times and the wanted columns; BadChunk if the bytes are no chunk."""
    try:
        rows, table = msgspec.msgpack.decode(
            zlib.decompress(chunk), type=tuple[int, dict[str, list[bytes]]]
        )
        if not 0 < rows <= ROWS_MAX:
            raise BadChunk(f"{rows} rows")
        times = unpack_numbers(table.pop(TIMES)[0], rows)
        columns = {}
        for name, (bits, *lists) in table.items():
            if wanted(name):
                columns[name] = [unpack_values(bits, one, rows) for one in lists]
    except (zlib.error, msgspec.DecodeError, struct.error, LookupError, ValueError) as error:
        raise BadChunk(str(error)) from error
    return times, columns


def unpack_values(bits: bytes, packed: bytes, rows: int) -> list[float | None]:
    """Return one list of a column, with None where a value is missing."""
    if not bits:
        return list(unpack_numbers(packed, rows))
    present = unpack_bits(bits, rows)
    numbers = iter(unpack_numbers(packed, sum(present)))
    return [next(numbers) if here else None for here in present]


def pack_bits(present: bytes) -> bytes:
    return int("".join(map(str, present)) or "0", 2).to_bytes((len(present) + 7) // 8)


def unpack_bits(bits: bytes, rows: int) -> list[bool]:
    digits = f"{int.from_bytes(bits):0{rows}b}"
    if len(digits) != rows:
        raise BadChunk("too many rows are present")
    return [digit == "1" for digit in digits]


def pack_numbers(values: Sequence[float]) -> bytes:
    """Pack numbers, of which there is at least one."""
    first = values[0]
    if values.count(first) == len(values):
        return bytes((CONSTANT,)) + struct.pack("<d", first)
    for denominator in (1, 10):
        whole = as_whole(values, denominator)
        if whole is not None:
            return pack_whole(whole, denominator)
    for kind, letter in ((SINGLE, "f"), (DOUBLE, "d")):
        try:
            numbers = array(letter, values)
        except OverflowError:
            continue
        if kind == DOUBLE or all(map(is_same, numbers, values)):
            return bytes((kind,)) + split_ranks(numbers)
    raise AssertionError("every float is a double")


def is_same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def as_whole(values: Sequence[float], denominator: int) -> list[int] | None:
    """Return the values times the denominator; None if these are no whole numbers."""
    try:
        whole = [round(value * denominator) for value in values]
    except (ValueError, OverflowError):
        return None  # NaN or infinite
    if max(whole) >= EXACT_MAX or min(whole) <= -EXACT_MAX:
        return None
    restored = whole if denominator == 1 else [one / denominator for one in whole]
    return whole if restored == list(values) else None


def pack_whole(whole: Sequence[int], denominator: int) -> bytes:
    steps = list(map(sub, whole[1:], whole))
    unit = gcd(*steps) or 1
    small = [step // unit for step in steps]
    bits = max(max(small), -min(small)).bit_length()
    letter = next(letter for letter, room in WIDTHS if bits <= room)
    head = HEAD.pack(WHOLE, denominator, ord(letter), unit, whole[0])
    return head + split_ranks(array(letter, small))


def unpack_numbers(packed: bytes, rows: int) -> list[float]:
    """Return so many numbers; BadChunk or an error of struct if there are not."""
    kind = packed[0]
    if kind == CONSTANT:
        (value,) = struct.unpack("<d", packed[1:])
        return [value] * rows
    if kind in (SINGLE, DOUBLE):
        return join_ranks("f" if kind == SINGLE else "d", packed[1:], rows).tolist()
    if kind != WHOLE:
        raise BadChunk(f"unknown kind {kind}")
    _, denominator, letter, unit, first = HEAD.unpack_from(packed)
    if denominator not in (1, 10) or chr(letter) not in "bhiq":
        raise BadChunk("unknown integers")
    steps = join_ranks(chr(letter), packed[HEAD.size :], rows - 1)
    scaled = steps if unit == 1 else map(mul, steps, repeat(unit))
    whole = list(accumulate(scaled, initial=first))
    return whole if denominator == 1 else [one / denominator for one in whole]


def split_ranks(numbers: "array[float] | array[int]") -> bytes:
    """Return the first bytes of all numbers, then their second ones, and so on."""
    data, width = numbers.tobytes(), numbers.itemsize
    return b"".join(data[rank::width] for rank in range(width))


def join_ranks(letter: str, data: bytes, many: int) -> "array[float]":
    """Undo `split_ranks`."""
    numbers: array[float] = array(letter)
    width = numbers.itemsize
    if len(data) != width * many:
        raise BadChunk(f"{len(data)} bytes for {many} numbers")
    if width == 1:
        numbers.frombytes(data)
        return numbers
    whole = bytearray(len(data))
    for rank in range(width):
        whole[rank::width] = data[rank * many : (rank + 1) * many]
    numbers.frombytes(whole)
    return numbers


def drop_missing(times: Sequence[float], values: Values) -> tuple[list[float], list[float]]:
    """Return the times and values of the rows that have a value."""
    present = [value is not None for value in values]
    kept = [value for value in values if value is not None]
    return list(compress(times, present)), kept
