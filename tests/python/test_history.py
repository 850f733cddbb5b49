"""The checks of test_linearizable.py find what is wrong with histories that are."""

import headrace as hr
import numpy as np
import pytest
from array_model import CELLS, FILL, check_attributes, check_cells, check_members, check_rows
from history import Operation, Rows, Violation, explain


def history(*entries):
    """(kind, began, over, answer), each by a worker of its own."""
    return [(n, 1, *entry) for n, entry in enumerate(entries)]


@pytest.fixture
def array(store):
    """With a chunk of cells and `rows` rows behind them."""
    hr.create_group(store)
    made = hr.create_array(store, "a", shape=CELLS, dtype="i8", chunks=4, fill_value=FILL)
    made[...] = 0
    return made


def cells(*rows, written=()):
    return [*written, *[0] * (CELLS - len(written)), *rows]


def test_order_keeps_to_the_times():
    def become(value):
        return lambda state: value

    def see(value):
        return lambda state: state if state == value else None

    one = Operation(0, 10, become(1), "become 1")
    two = Operation(5, 20, become(2), "become 2")
    # They overlap: either may be the last.
    assert explain([one, two], 0, "x") == {1, 2}
    assert explain([one, two, Operation(21, 22, see(1), "see 1")], 0, "x") == {1}
    assert explain([one, two, Operation(2, 8, see(0), "see 0")], 0, "x") == {1, 2}
    # `become 1` was over before it began, and after that nothing made it 0.
    with pytest.raises(Violation, match="see 0"):
        explain([one, two, Operation(11, 12, see(0), "see 0")], 0, "x")
    # Two that see them in different orders, one after the other.
    seen = [Operation(21, 22, see(1), "see 1"), Operation(23, 24, see(2), "see 2")]
    with pytest.raises(Violation, match="see 2"):
        explain([one, two, *seen], 0, "x")


def test_rows_that_are_equal_are_one_state():
    rows = Rows(8)
    first = rows.pushed(0, 7, 10)
    both = rows.pushed(first, 9, 12)
    assert rows.of([7, 7, 9, 9]) == both
    assert rows.resized(both, 10, -1) == first
    assert rows.resized(both, 8, -1) == 0
    assert rows.resized(both, 11, -1) == rows.of([7, 7, 9])
    grown = rows.resized(rows.resized(both, 9, -1), 11, -1)
    assert grown == rows.of([7, -1, -1]) and rows.resized(grown, 12, -1) == rows.of([7, -1, -1, -1])


APPENDED = [("append", 0, 10, [8, 10, 5]), ("append", 5, 15, [10, 11, 6])]


# What is in the store, what was told beside APPENDED, and what is said of it.
WRONG = {
    "a lost append": ([5, 5], [], "what is left"),
    "rows of nobody in the end": ([5, 5, 6, 7], [], "what is left"),
    "two at one place": ([6, 5], [("append", 5, 15, [8, 9, 7])], "rows: no order"),
    "an append out of order": ([6, 5, 5], [("append", 16, 20, [8, 9, 7])], "rows: no order"),
    "a part of an append": ([5, 5, 6], [("read", 1, 20, cells(5))], "rows: no order"),
    "old rows": ([5, 5, 6], [("read", 16, 20, cells(5, 5))], "rows: no order"),
    "rows of nobody": ([5, 5, 6], [("read", 1, 20, cells(5, 4))], "rows: no order"),
    "fill values": ([5, 5, 6], [("read", 16, 20, cells(5, 5, FILL))], "rows: no order"),
    "an old shape": ([5, 5, 6], [("shape", 16, 20, CELLS)], "rows: no order"),
    "a resize that did nothing": ([5, 5, 6], [("resize", 16, 20, 9)], "what is left"),
    "a resize that did too much": ([5], [("resize", 16, 20, 10)], "what is left"),
    "rows that come back": (
        [5, 5],
        [("resize", 16, 20, 9), ("resize", 21, 22, 10)],
        "what is left",
    ),
    "rows missing beside a resize above them": (
        [5, 5],
        [("resize", 16, 20, 10), ("read", 16, 20, cells(5, FILL))],
        "row 9 .* is missing",
    ),
    "rows cut off before, beside another resize": (
        [5, FILL],
        [("resize", 16, 20, 9), ("resize", 21, 40, 10), ("read", 22, 30, cells(5, 5))],
        "was cut off",
    ),
    "rows at another place beside a resize": (
        [5, 5],
        [("resize", 16, 20, 10), ("read", 16, 20, cells(5, 6))],
        "6 of .* was read at 9",
    ),
    "rows of nobody beside a resize": (
        [5, 5],
        [("resize", 16, 20, 10), ("read", 16, 20, cells(5, 7))],
        "7 was never appended",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows(store, array, name):
    rows, entries, message = WRONG[name]
    array.append(np.array(rows, "i8"))
    with pytest.raises(Violation, match=message):
        check_rows(history(*APPENDED, *entries), store)


def test_rows_as_they_may_be(store, array):
    array.append(np.array([5, FILL, FILL], "i8"))
    check_rows(
        history(
            *APPENDED,
            ("read", 2, 12, cells(5, 5)),
            ("shape", 2, 3, CELLS),
            ("resize", 20, 30, 9),
            ("read", 21, 29, cells(5, FILL, 6)),
            ("resize", 31, 40, 11),
        ),
        store,
    )


def test_cells(store, array):
    array[0] = 3
    wrote = [("write", 0, 10, 3)]
    check_cells(history(*wrote, ("cells", 5, 15, cells(written=[3]))), store)
    with pytest.raises(Violation, match="cells"):
        check_cells(history(*wrote, ("cells", 11, 15, cells())), store)
    with pytest.raises(Violation, match="cells"):
        check_cells(history(*wrote, ("write", 11, 15, 4)), store)  # of the second
    # Two of one chunk are seen in one order.
    array[1] = 4
    wrote = [("write", 0, 10, 3), ("write", 0, 10, 4)]
    seen = [("cells", 1, 9, cells(written=each)) for each in ([3], [0, 4])]
    with pytest.raises(Violation, match="cells"):
        check_cells(history(*wrote, *seen), store)


@pytest.mark.parametrize("kind", ["attributes", "group attributes"])
def test_attributes(store, array, kind):
    node = array if kind == "attributes" else hr.open_group(store, mode="r+")
    node.attrs["x"] = 1
    check_attributes(history((kind, 0, 10, ["set", "x", 1])), store)
    lost = [(kind, 0, 10, ["set", "x", 1]), (kind, 0, 10, ["set", "y", 1])]
    back = [(kind, 0, 10, ["set", "x", 1]), (kind, 11, 20, ["pop", "x", 1])]
    old = [(kind, 0, 10, ["set", "x", 1]), (kind, 11, 20, ["all", {}, 0])]
    for entries in (lost, back, old):
        with pytest.raises(Violation, match=kind):
            check_attributes(history(*entries), store)


def test_members(store, array):
    hr.create_array(store, "b0", shape=4, chunks=2, dtype="i8", attributes={"by": 2})
    made = [("create", 0, 10, ["b0", 1]), ("overwrite", 5, 15, ["b0", 2])]
    right = [("look", 6, 7, ["b0", None, None, None]), ("create", 8, 9, ["b0", None])]
    check_members(history(*made, *right), store)
    for wrong in (
        ("overwrite", 16, 20, ["b0", 3]),  # it is undone
        ("remove", 16, 20, ["b0", None]),
        ("create", 16, 20, ["b0", 4]),  # beside one that is there
        ("refused", 16, 20, ["b0", None]),  # as if there was none
        ("look", 16, 20, ["b0", None, None, None]),
        ("look", 16, 20, ["b0", 1, 4, [0] * 4]),
        ("look", 6, 7, ["b0", 1, 4, [9] * 4]),
        ("look", 6, 7, ["b0", 2, 6, [0] * 6]),
        ("look", 16, 20, ["b0", 2, 0, []]),
    ):
        with pytest.raises(Violation, match="b0"):
            check_members(history(*made, wrong), store)
    with pytest.raises(Violation, match="b1"):
        check_members(history(("create", 0, 10, ["b0", 2]), ("create", 1, 9, ["b1", None])), store)
