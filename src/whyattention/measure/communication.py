"""What the devices of a compiled program say to each other: collective operations, counted, and their bytes."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from jax.stages import Compiled

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(")
_CALLED = re.compile(r"(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.-]+)")
_CONDITION = re.compile(r" while\(.*condition=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ARRAY = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")


class Collective(NamedTuple):
    """One message in which all devices of a group take part: its kind, and the bytes that each ends up with."""

    kind: str
    bytes: int


@dataclass
class _Computation:
    """A function of the compiled program: its own collectives, and the functions it calls, each so many times."""

    collectives: list[Collective]
    calls: list[tuple[str, int | None]]


def collectives(program: Compiled | str) -> Counter[Collective]:
    """How often each collective runs when `program`, compiled, or its text, is run once.

    What is in a loop counts once for every turn, and in its condition once more, at the end. Several arrays in one
    message are one collective. A branch is counted as if it were always taken. Raises ValueError if there is a
    collective in a loop of unknown length.
    """
    functions, entry = _parse(program if isinstance(program, str) else program.as_text())

    def total(name: str) -> Counter[Collective]:
        count = Counter(functions[name].collectives)
        for called, turns in functions[name].calls:
            inner = total(called)
            if inner and turns is None:
                raise ValueError(f"{', '.join({each.kind for each in inner})} in a loop of unknown length")
            count.update({each: times * (turns or 0) for each, times in inner.items()})
        return count

    return total(entry)


def calls(counted: Counter[Collective]) -> Counter[str]:
    """How many collectives of each kind there are."""
    kinds = Counter()
    for each, times in counted.items():
        kinds[each.kind] += times
    return kinds


def sent_bytes(counted: Counter[Collective], devices: int) -> float:
    """Bytes that each of `devices` sends, if all take part in every collective and none sends more than it must.

    With p devices an all-reduce of b bytes takes 2 (p - 1) / p * b from each (Patarasuk & Yuan 2009), in a ring for
    instance: a reduce-scatter and an all-gather. A collective permute sends what it hands over.
    """
    passed = (devices - 1) / devices
    share = {
        "all-reduce": 2 * passed,
        "all-gather": passed,
        "reduce-scatter": devices - 1,  # its result is one part of what was reduced
        "all-to-all": passed,
        "collective-permute": 1,
    }
    return sum(times * each.bytes * share[each.kind] for each, times in counted.items())


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """The program's functions by name, and the name of the one that is run."""
    functions, entry, current = {}, None, None
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = functions[head[2]] = _Computation([], [])
            entry = head[2] if head[1] else entry
            continue
        if found := _COLLECTIVE.search(line):
            current.collectives.append(Collective(found[2], _result_bytes(*found.groups())))
        condition, turns = _CONDITION.search(line), _TURNS.search(line)
        times = (int(turns[1]) if turns else None) if condition else 1
        if condition:
            current.calls.append((condition[1], None if times is None else times + 1))
        called = _CALLED.findall(line) + [
            name.strip(" %") for names in _BRANCHES.findall(line) for name in names.split(",")
        ]
        if called:
            current.calls.extend((name, times) for name in called)
    return functions, entry


def _result_bytes(shapes: str, kind: str, start: str | None) -> int:
    arrays = _ARRAY.findall(shapes)
    if start and kind in ("all-gather", "collective-permute"):
        # The beginning of one that runs on beside other work also names what is sent, first, and perhaps its counters.
        arrays = [array for array in arrays if array[::2] != ("u", "")]
        arrays = arrays[len(arrays) // 2 :]
    return sum(_bytes(*array) for array in arrays)


def _bytes(kind: str, bits: str, sizes: str) -> int:
    elements = math.prod(int(size) for size in sizes.split(",") if size)
    return elements if kind == "pred" else elements * int(bits) // 8
