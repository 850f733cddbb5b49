"""Peers in turns, so that all of them see the same machine."""

from collections.abc import Sequence


def in_turn(peers: Sequence, number: int) -> list:
    """The peers of that round: a different one first each time."""
    first = number % len(peers)
    return [*peers[first:], *peers[:first]]
