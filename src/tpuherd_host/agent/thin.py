"""Thin slices of the standard library: whole, these take longer to load than the rest of the agent.

`typing` is for whoever reads types and never runs; `json` wants regular expressions, `signal` and
`socket` want enums, and each named tuple of `collections` is compiled anew at each start.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import json as json
    import signal as signal
    import socket as socket
    import struct as struct
    from collections import deque as deque
    from contextlib import suppress as suppress
    from importlib import import_module as import_module
    from typing import Any as Any
    from typing import BinaryIO as BinaryIO
    from typing import Callable as Callable
    from typing import Container as Container
    from typing import Deque as Deque
    from typing import Dict as Dict
    from typing import FrozenSet as FrozenSet
    from typing import Iterable as Iterable
    from typing import Iterator as Iterator
    from typing import List as List
    from typing import Mapping as Mapping
    from typing import NamedTuple as NamedTuple
    from typing import Optional as Optional
    from typing import Sequence as Sequence
    from typing import Set as Set
    from typing import Tuple as Tuple
    from typing import Type as Type
    from typing import Union as Union
else:
    import _collections
    import _json
    import _signal
    import _socket
    import _struct
    import sys

    signal, socket, struct, deque = _signal, _socket, _struct, _collections.deque

    class Kind:
        """Whatever stands in annotations."""

        def __getitem__(self, _):
            return self

    Any = BinaryIO = Callable = Container = Deque = Dict = FrozenSet = Iterable = Iterator = Kind()
    List = Mapping = Optional = Sequence = Set = Tuple = Type = Union = Any

    def import_module(name):
        """A module of ours that most agents never need, or a part of the standard library."""
        __import__(name)
        return sys.modules[name]

    class Suppress:
        """Errors that change nothing."""

        def __init__(self, *kinds):
            self.kinds = kinds

        def __enter__(self):
            pass

        def __exit__(self, kind, *_):
            return kind is not None and issubclass(kind, self.kinds)

    LACKING = object()
    GETTERS = [_collections._tuplegetter(place, None) for place in range(64)]

    class Row(type):
        """So that a row has its values and no more."""

        def __new__(kind, name, bases, room):
            row = type.__new__(kind, name, bases, {"__slots__": (), **room})
            fields = row._fields = tuple(getattr(row, "__annotations__", ()))
            row._ends = tuple([room.get(field, LACKING) for field in fields])
            for place, field in enumerate(fields):
                setattr(row, field, GETTERS[place])
            return row

    class NamedTuple(tuple, metaclass=Row):
        """What `typing` calls so, but for what nobody here asks of it."""

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                many = len(values)
                values += tuple(map(named.pop, cls._fields[many:], cls._ends[many:]))
                if named or len(values) > len(cls._fields) or LACKING in values:
                    raise TypeError(f"{cls.__name__} has the fields {cls._fields}")
            return tuple.__new__(cls, values)

        def _replace(self, **named):
            new = tuple.__new__(type(self), map(named.pop, self._fields, self))
            if named:
                raise TypeError(f"{type(self).__name__} has the fields {self._fields}")
            return new

        def _asdict(self):
            return dict(zip(self._fields, self))

        def __repr__(self):
            told = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({told})"

        def __getnewargs__(self):
            return tuple(self)

    QUOTED = _json.encode_basestring_ascii

    def foreign(content):
        raise TypeError(f"{type(content).__name__} is no JSON")

    class Plain:
        """How JSON is read."""

        strict = True
        object_hook = object_pairs_hook = None
        parse_int, parse_float, parse_constant = int, float, float

    class Json:
        """Writes and reads as the whole one does."""

        BLANK = " \t\n\r"
        scan = staticmethod(_json.make_scanner(Plain))

        @staticmethod
        def dumps(content, separators=(", ", ": "), sort_keys=False):
            between, behind = separators
            written = _json.make_encoder(
                None, foreign, QUOTED, None, behind, between, sort_keys, False, True
            )
            return "".join(written(content, 0))

        @staticmethod
        def loads(text):
            if not isinstance(text, str):
                text = text.decode()
            text = text.strip(Json.BLANK)
            try:
                content, end = Json.scan(text, 0)
            except StopIteration:
                end = -1
            if end != len(text):
                raise ValueError("no JSON")
            return content

        @staticmethod
        def load(file):
            return Json.loads(file.read())

    json, suppress = Json, Suppress
