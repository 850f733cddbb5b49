"""What an array and its group promise to those who use them at once, as checks of what they told.

A log is of entries [worker, turn, kind, began, over, answer] (test_linearizable.py makes it). Each
check looks at one kind of object by `history.explain` and then at what is left in the store. Where
less than one order of all is promised (docs/survives.md, "While others write") it says what.
"""

import headrace as hr
from history import Operation, Rows, Violation, explain, runs

# Cells in front that writers own, one each; then appended rows. The first three are of one chunk.
CELLS = 8
CHUNKS_OF_CELLS = [(0, 3), (3, 4)]
FILL = -1


def operation(entry, step):
    worker, turn, kind, began, over, answer = entry
    words = f"worker {worker} turn {turn}: {kind} {str(answer)[:200]} [{began}, {over}]"
    return Operation(began, over, step, words)


def seeing(wanted):
    """What changes nothing and can only be told in this state."""
    return lambda state: state if state == wanted else None


def overlapping(entry, others):
    return [other for other in others if other[3] < entry[4] and entry[3] < other[4]]


# --- rows


def check_rows(log, store):
    """Appends, resizes and shapes are in one order, and reads are of one state in it. Of a read
    that overlaps a resize only its number of rows is."""
    rows = Rows(CELLS)
    resizes = [entry for entry in log if entry[2] == "resize"]
    appends = {entry[5][2]: entry for entry in log if entry[2] == "append"}

    def appending(first, end, tag):
        return lambda state: rows.pushed(state, tag, end) if rows.end(state) == first else None

    def resizing(to):
        return lambda state: rows.resized(state, to, FILL)

    def ending_at(end):
        return lambda state: state if rows.end(state) == end else None

    operations = []
    for entry in log:
        kind, answer = entry[2], entry[5]
        if kind == "append":
            operations.append(operation(entry, appending(*answer)))
        elif kind == "resize":
            operations.append(operation(entry, resizing(answer)))
        elif kind == "shape":
            operations.append(operation(entry, ending_at(answer)))
        elif kind == "read" and overlapping(entry, resizes):
            check_beside_resizes(entry, appends, resizes)
            operations.append(operation(entry, ending_at(len(answer))))
        elif kind == "read":
            operations.append(operation(entry, seeing(rows.of(answer[CELLS:]))))
    left = explain(operations, 0, "rows")
    found = hr.open_array(store, "a")[CELLS:].tolist()
    if rows.of(found) not in left:
        raise Violation(f"rows: no order explains what is left: {runs(found, CELLS)}")


def check_beside_resizes(entry, appends, resizes):
    """Each row is as it was at some instant of the read, or erased by a resize."""
    _, _, _, began, over, seen = entry
    for tag, first, count in runs(seen[CELLS:], CELLS):
        if tag == FILL:
            for row in range(first, first + count):
                check_erased(row, entry, appends, resizes)
            continue
        if tag not in appends:
            raise Violation(f"{tag} was never appended, but read by {entry}")
        *_, begun, done, (start, end, _) = appends[tag]
        if not (start <= first and first + count <= end and begun < over):
            raise Violation(f"{tag} of {appends[tag]} was read at {first} by {entry}")
        for *_, cut, was_cut, to in resizes:
            if done < cut and was_cut < began and to < first + count:
                raise Violation(f"{tag} was cut off before {entry}")


def check_erased(row, entry, appends, resizes):
    _, _, _, began, over, _ = entry
    cuts = [cut for cut in resizes if cut[5] <= row and cut[3] < over]
    for append in appends.values():
        start, end, _ = append[5]
        if start <= row < end and append[4] < began and all(c[4] < append[3] for c in cuts):
            raise Violation(f"row {row} of {append} is missing in {entry}")


# --- cells


def check_cells(log, store):
    """Those of one chunk are read as they were at one instant."""

    def writing(at, tag):
        return lambda state: (*state[:at], tag, *state[at + 1 :])

    for first, last in CHUNKS_OF_CELLS:
        operations = []
        for entry in log:
            worker, _, kind, _, _, answer = entry
            if kind == "write" and first <= worker < last:
                operations.append(operation(entry, writing(worker - first, answer)))
            elif kind in ("read", "cells"):
                operations.append(operation(entry, seeing(tuple(answer[first:last]))))
        left = explain(operations, (0,) * (last - first), f"cells from {first}")
        found = tuple(hr.open_array(store, "a")[first:last].tolist())
        if found not in left:
            raise Violation(f"cells from {first}: {found}, expected one of {left}")


# --- attributes


def check_attributes(log, store):
    """What was set is there and what was taken back is not, in every document that was read."""
    check_document(log, "attributes", hr.open_array(store, "a"))
    check_document(log, "group attributes", hr.open_group(store, use_consolidated=False))


def check_document(log, kind, node):
    # A state is all pairs of names and values, as one number: each is there or it is not.
    def number_of(attributes):
        number = 0
        for pair in attributes.items():
            number ^= hash(pair)
        return number

    def switching(pair):
        bit = hash(pair)
        return lambda state: state ^ bit

    operations = []
    for entry in (each for each in log if each[2] == kind):
        what, name, value = entry[5]
        step = seeing(number_of(name)) if what == "all" else switching((name, value))
        operations.append(operation(entry, step))
    left = explain(operations, 0, kind)
    if number_of(dict(node.attrs)) not in left:
        raise Violation(f"{kind}: no order explains what is left: {dict(node.attrs)}")


# --- members of the group


def check_members(log, store):
    """They come and go in one order. While one is replaced or removed, it may be seen without
    elements or not at all."""
    group = hr.open_group(store, use_consolidated=False)
    for name in ("b0", "b1", "b2"):
        mine = [entry for entry in log if isinstance(entry[5], list) and entry[5][0] == name]
        taking = [entry for entry in mine if entry[2] in ("overwrite", "remove")]
        operations = []
        for entry in mine:
            if entry[2] == "look":
                check_look(entry, mine, taking)
                if entry[5][1] is None and overlapping(entry, taking):
                    continue
            if entry[2] != "grow":
                operations.append(operation(entry, member_step(entry)))
        left = explain(operations, 0, name)
        by = group[name].attrs["by"] if name in group else 0
        if by not in left:
            raise Violation(f"{name} is of {by}, expected one of {left}")
        if by and group[name].shape != (4,):
            raise Violation(f"{name} has shape {group[name].shape}")


def member_step(entry):
    """A state is by whom it was made; 0: there is none."""
    _, _, kind, _, _, (_, by, *_) = entry
    if kind == "look":
        return seeing(by or 0)
    if kind == "refused":  # an overwrite or a removal: what is there is no array
        return seeing(0)
    if kind == "create" and by is None:  # there was one
        return lambda state: state or None
    if kind == "create":
        return lambda state: None if state else by
    return lambda state: by or 0


def check_look(entry, mine, taking):
    _, by, extent, elements = entry[5]
    if extent is None:
        return
    if by is None and not overlapping(entry, taking):
        raise Violation(f"it has lost its attributes: {entry}")
    # Appends come by twos, and are taken back; it has no elements while it is removed.
    grown = [each for each in overlapping(entry, mine) if each[2] == "grow"]
    extents = {4 + 2 * n for n in range(1 + len(grown))}
    if extent not in extents and not (extent == 0 and overlapping(entry, taking)):
        raise Violation(f"{extent} elements: {entry}")
    written = {each[0] * 1_000_000 + each[1] for each in mine if each[2] in ("create", "grow")}
    if len(elements) != extent or not set(elements) <= written | {0}:
        raise Violation(f"elements that nobody wrote: {entry}")


CHECKS = [check_rows, check_cells, check_attributes, check_members]
