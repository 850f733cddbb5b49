"""Whether what operations on one object were told can be explained: linearizability.

An operation has the time at which it began and that at which it was over, and a step: what it does
to the state of the object, or None where it could not have been told in that state what it was
told. `explain` looks for an order of all of them, in which none comes before one that was over
before it began; it goes along the times and keeps every state that the object may be in, so what it
refuses has no such order. (Wing and Gong's search in the form of Lowe: operations that overlap are
few, as each worker has one at a time.) An object of independent parts is linearizable when each
part is, so parts are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

State = Hashable


class Violation(AssertionError):
    """No order explains it."""


@dataclass(frozen=True, eq=False)
class Operation:
    began: int
    over: int
    step: Callable[[State], State | None]
    words: str


def explain(operations: Iterable[Operation], state: State, about: str) -> set[State]:
    """The states that the object may be in when all are over."""
    operations = list(operations)
    # One that begins at the instant at which another is over may come before it.
    events = sorted(
        [(each.began, 0, n) for n, each in enumerate(operations)]
        + [(each.over, 1, n) for n, each in enumerate(operations)]
    )
    pending: list[int] = []
    # A state, and which of the pending have come before it.
    found: set[tuple[State, frozenset[int]]] = {(state, frozenset())}
    for _, is_over, number in events:
        if not is_over:
            pending.append(number)
            continue
        before, found = found, set()
        seen = set(before)
        unexplored = list(before)
        while unexplored:
            now, done = unexplored.pop()
            if number in done:
                found.add((now, done - {number}))
                continue
            for each in pending:
                if each in done:
                    continue
                after = operations[each].step(now)
                if after is None:
                    continue
                following = (after, done | {each})
                if following not in seen:
                    seen.add(following)
                    unexplored.append(following)
        if not found:
            raise Violation(_story(about, operations, pending, number, before))
        pending.remove(number)
    return {now for now, _ in found}


def _story(about, operations, pending, number, before):
    now = operations[number]
    lines = [f"{about}: no order explains", f"  {now.words}", "which overlaps"]
    lines += [f"  {operations[each].words}" for each in pending if each != number]
    earlier = sorted((each for each in operations if each.over < now.over), key=lambda e: e.over)
    lines += ["after", *(f"  {each.words}" for each in earlier[-12:])]
    lines += ["states before:", *(f"  {each!r}" for each in sorted(map(str, before))[:8])]
    return "\n".join(lines)


class Rows:
    """Rows of one dimension as states: numbers of sequences of blocks, equal for equal rows."""

    def __init__(self, start: int):
        self._blocks = [(None, start, None)]  # the sequence in front, where it ends, its value
        self._numbers: dict[tuple, int] = {}
        self.start = start

    def end(self, state: int) -> int:
        return self._blocks[state][1]

    def pushed(self, state: int, value: int, end: int) -> int:
        front, before, last = self._blocks[state]
        if last == value:
            state = front
        elif end == before:
            return state
        key = (state, end, value)
        if key not in self._numbers:
            self._numbers[key] = len(self._blocks)
            self._blocks.append(key)
        return self._numbers[key]

    def resized(self, state: int, end: int, fill: int) -> int:
        if end >= self.end(state):
            return self.pushed(state, fill, end)
        while True:
            front, _, value = self._blocks[state]
            if self.end(front) < end:
                return self.pushed(front, value, end)
            state = front
            if self.end(state) == end:
                return state

    def of(self, rows: list[int]) -> int:
        state = 0
        for value, first, count in runs(rows, self.start):
            state = self.pushed(state, value, first + count)
        return state


def runs(rows: list[int], start: int) -> list[tuple[int, int, int]]:
    """Equal rows beside one another: their value, the index of the first, how many."""
    found: list[list[int]] = []
    for index, row in enumerate(rows, start):
        if found and found[-1][0] == row:
            found[-1][2] += 1
        else:
            found.append([row, index, 1])
    return [tuple(each) for each in found]
