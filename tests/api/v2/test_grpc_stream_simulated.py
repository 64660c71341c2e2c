"""Streams of gRPC in many orders of events: each one ends, and no answer is lost.

play_streams.py plays as many more as one likes, or one of them again.
"""

import sys

import pytest
from simulation import simulate
from stream_world import World

QUICK, MANY = 40, 500


def play(seed):
    world = World(seed)
    try:
        simulate(world.play)
    except BaseException as error:
        error.add_note(f"World({seed}) did: {' '.join(world.told)}")
        raise


@pytest.mark.timeout(600)
def test_each_stream_ends_and_no_answer_is_lost():
    for seed in range(QUICK):
        play(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)  # on machines that do much else
def test_so_it_does_in_hundreds_of_orders(capsys):
    for seed in range(QUICK, QUICK + MANY):
        play(seed)
    with capsys.disabled():
        sys.stdout.write(f" {MANY} orders of events")
