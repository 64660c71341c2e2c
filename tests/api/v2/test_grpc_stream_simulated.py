"""Streams of gRPC in thousands of orders of events: each one ends, and no answer is lost."""

import sys

import pytest
from simulation import simulate
from stream_world import World

QUICK, MANY = 150, 4000


def play(seed):
    world = World(seed)
    try:
        simulate(world.play)
    except BaseException as error:
        error.add_note(f"World({seed}) did: {' '.join(world.told)}")
        raise


@pytest.mark.parametrize("first", range(0, QUICK, 50))
def test_each_stream_ends_and_no_answer_is_lost(first):
    for seed in range(first, first + 50):
        play(seed)


@pytest.mark.slow
def test_so_it_does_in_thousands_of_orders(capsys):
    for seed in range(QUICK, QUICK + MANY):
        play(seed)
    with capsys.disabled():
        sys.stdout.write(f" {MANY:,} orders of events")
