import pytest
from simulated import World, group, spec

from inferd.ray.attempts import MOST_FAILURES
from inferd.ray.replica import ServingState
from inferd.ray.status import ReplicaPlace


def running(count=3, **more):
    world = World(**more.pop("world", {}))
    world.deployment.become(spec(group(least=count, **more)))
    world.settle()
    return world


def test_replicas_are_started_until_there_are_as_many_as_wanted():
    world = running(3)
    assert len(world.ready()) == 3
    assert len({each.name for each in world.ready()}) == 3


def test_a_place_is_none_before_its_server_is_ready():
    world = World(load_s=5.0)
    world.deployment.become(spec(group()))
    world.run(4.0)
    assert world.deployment.places() == ()
    assert world.group().replicas[0].phase == "loading"


def test_more_and_fewer_replicas_leave_the_others_alone():
    world = running(1)
    [first] = world.ready()
    world.deployment.become(spec(group(least=3)))
    world.settle()
    assert first in world.ready()
    world.deployment.become(spec(group(least=1)))
    world.settle()
    assert len(world.ready()) == 1
    assert world.forced == []


def test_a_replica_that_leaves_is_known_to_drain_before_its_server_is_stopped():
    world = running(2)
    world.deployment.become(spec(group(least=1)))
    world.step()
    [draining] = [each for each in world.deployment.places() if each.is_draining]
    assert world.serving() == 2
    world.until(lambda: world.serving() == 1)
    assert draining in world.deployment.places()  # it still finishes what is under way
    world.settle()
    assert draining not in world.deployment.places()


@pytest.mark.parametrize("surge", [1, 2])
def test_with_a_surge_there_are_never_fewer_while_replicas_are_replaced(surge):
    world = running(3, surge=surge)
    before = {each.name for each in world.ready()}
    world.history.clear()
    world.deployment.become(spec(group(least=3, surge=surge), generation=1))
    world.step()
    world.settle()
    assert min(count for _, count in world.history) == 3
    assert max(count for _, count in world.history) <= 3 + surge
    assert before.isdisjoint(each.name for each in world.ready())


def test_without_a_surge_there_is_one_fewer_while_replicas_are_replaced():
    world = running(3, surge=0)
    world.room = 3
    world.history.clear()
    world.deployment.become(spec(group(least=3, surge=0, models=("/new",))))
    world.step()
    world.settle()
    assert {count for _, count in world.history} == {2, 3}


def test_an_update_that_does_not_start_leaves_the_old_replicas_and_is_given_up():
    world = running(3)
    world.broken.add("/new")
    world.deployment.become(spec(group(least=3, models=("/new",))))
    world.until(lambda: world.group().is_given_up)
    assert len(world.ready()) == 3
    assert "no such folder" in world.group().reason
    assert f"{MOST_FAILURES} attempts" in world.group().reason
    starts = world.deployment._last_number
    world.run(200)
    assert world.deployment._last_number == starts
    world.deployment.become(spec(group(least=3)))
    world.settle()


def test_replicas_that_never_start_are_tried_one_at_a_time_and_ever_later():
    world = World()
    world.broken.add("/m")
    world.deployment.become(spec(group(least=3)))
    world.until(lambda: world.group().reason)
    most = 0
    while not world.group().is_given_up:
        world.step()
        most = max(most, len(world.actors))
    assert most <= 2  # the two others of the first three are still there when one fails
    assert world.now > 1 + 2 + 4


def test_a_replica_that_hangs_while_it_loads_is_ended_and_tried_again():
    world = World()
    world.hung.add("/m")
    world.deployment.become(spec(group(ready_timeout_s=10.0)))
    world.until(lambda: "not ready after 10 s" in world.group().reason)
    world.hung.clear()
    world.settle()
    assert world.deployment._last_number == 2


def test_a_killed_server_is_replaced_at_once_when_it_had_served_for_long():
    world = running(2)
    world.run(60)
    victim = world.actors[1]
    victim.state, victim.reason = ServingState.ENDED, "SIGKILL"
    world.step()
    assert len(world.ready()) == 1
    assert world.settle() < 3.0


def test_a_server_that_ends_again_and_again_is_replaced_ever_later_but_always():
    world = running(1)
    for _ in range(2 * MOST_FAILURES):
        for actor in world.actors.values():
            actor.state = ServingState.ENDED
        world.step()
        world.settle()
    assert not world.group().is_given_up
    assert world.now > 60


def test_a_server_that_somebody_else_stops_is_replaced_and_drains():
    world = running(1)
    world.actors[1].state, world.actors[1].end_at = ServingState.ENDING, world.now + 1.0
    world.step()
    assert [each.is_draining for each in world.deployment.places()] == [True]
    world.settle()


def test_a_lost_actor_is_replaced_while_its_server_answers():
    world = running(2)
    world.actors[1].is_gone = True
    world.run(1.0)
    assert len(world.deployment.places()) == 2  # its server still says that it is ready
    world.until(lambda: len(world.ready()) == 3)
    world.actors[1].answers = False
    world.settle()
    assert 1 not in world.actors


def test_a_silent_replica_stays_a_place_as_long_as_its_server_answers():
    world = running(2)
    world.actors[1].is_cut = True
    world.run(60)
    assert len(world.ready()) == 2
    assert world.deployment._last_number == 2
    world.actors[1].answers = False
    world.until(lambda: len(world.ready()) == 1, 1.0)
    world.until(lambda: len(world.ready()) == 2, 10.0)
    assert "does not answer" in world.group().reason or world.group().is_settled


def test_a_replica_that_speaks_again_is_a_place_again():
    world = running(2)
    world.actors[1].is_cut = True
    world.actors[1].answers = False
    world.until(lambda: len(world.ready()) == 1)
    world.actors[1].is_cut = False
    world.actors[1].answers = True
    world.run(0.5)
    assert len(world.ready()) == 2
    assert world.deployment._last_number == 2


@pytest.mark.parametrize(("count", "cut"), [(1, 1), (3, 2), (4, 4)])
def test_a_controller_to_which_most_are_silent_leaves_all_as_it_is(count, cut):
    world = running(count)
    for number in range(1, cut + 1):
        world.actors[number].is_cut = True
        world.actors[number].answers = False
    world.run(60)
    assert len(world.ready()) == count
    assert world.deployment._last_number == count
    for number in range(1, cut + 1):
        world.actors[number].is_gone, world.actors[number].is_cut = True, False  # Ray says so
    world.settle()
    assert len(world.ready()) == count


def test_a_controller_to_which_most_are_silent_drains_none_of_them_for_an_update():
    world = running(3)
    for actor in world.actors.values():
        actor.is_cut, actor.answers = True, False
    world.run(20)
    world.start_s = 1000.0
    world.deployment.become(spec(group(least=3), generation=1))
    world.run(60)
    assert len(world.ready()) == 3


def test_a_replica_that_was_replaced_for_its_silence_is_ended_for_good():
    world = running(2)
    world.actors[1].is_cut = True
    world.actors[1].answers = False
    world.until(lambda: 1 not in world.actors)
    assert world.forced == [1]  # it may live on, on a node that is cut off
    world.settle()


def test_what_ray_cannot_place_is_waited_for_and_says_what_for():
    world = World()
    world.room = 1
    world.deployment.become(spec(group(least=2)))
    world.run(5)
    world.deployment.hint(2, "no node has a GPU")
    assert world.group().reason == "no node has a GPU"
    assert not world.group().is_given_up
    world.room = 2
    world.settle()
    assert world.group().reason == ""


def test_what_is_not_placed_yet_is_dropped_first():
    world = World()
    world.room = 1
    world.deployment.become(spec(group(least=3)))
    world.run(5)
    world.deployment.become(spec(group(least=1)))
    world.settle()
    assert sorted(world.forced) == [2, 3]


def test_a_server_that_does_not_end_is_ended_with_force():
    world = running(1, world={"drain_s": 1000.0}, stop_timeout_s=20.0)
    world.deployment.become(spec())
    world.until(lambda: not world.actors)
    assert world.forced == [1]


def test_a_removed_group_ends_also_when_it_was_given_up():
    world = running(2)
    world.broken.add("/new")
    world.deployment.become(spec(group(least=2, models=("/new",))))
    world.until(lambda: world.group().is_given_up)
    world.deployment.become(spec())
    world.until(lambda: not world.actors and not world.deployment.status().groups)


def test_the_group_follows_its_load():
    rule = {"pending": 2.0, "up_after_s": 3.0, "down_after_s": 20.0}
    world = World()
    world.deployment.become(spec(group(least=1, most=3, rule=rule)))
    world.settle()
    world.rate = 6.0
    assert world.until(lambda: len(world.ready()) == 3) < 15.0
    world.rate = 0.5
    assert 20.0 <= world.until(lambda: len(world.ready()) == 1) < 40.0


def test_a_group_that_is_idle_ends_and_is_woken():
    world = World()
    rule = {"idle_s": 30.0, "down_after_s": 5.0}
    world.deployment.become(spec(group(least=0, most=2, rule=rule)))
    world.run(0.25)
    assert world.deployment.places() == ()  # nobody knows yet which models it has
    world.until(lambda: len(world.ready()) == 1)
    world.until(lambda: world.group().desired == 0)
    world.settle()
    assert world.actors == {}
    [asleep] = world.deployment.places()
    assert asleep == ReplicaPlace("g", "", 0, 0, ("m",), is_asleep=True)
    world.deployment.wake("g")
    world.run(0.5)
    assert world.deployment.places() == (asleep,)  # until there is one that serves
    world.until(lambda: [each.name for each in world.ready()] == ["g-2"], 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_it_ends_as_wanted_and_updates_keep_enough(seed):
    """Random ends, silences and updates; afterwards, all is as wanted, and nothing is left over."""
    world = World(seed, drain_s=1.0)
    chance = world.random
    wanted = 3
    world.deployment.become(spec(group(least=wanted)))
    for generation in range(40):
        world.run(chance.choice((0.25, 1, 5)))
        numbers = sorted(world.actors)
        victim = world.actors[chance.choice(numbers)] if numbers else None
        what = chance.choice(("end", "gone", "cut", "update", "scale", "speak"))
        if what == "update" or victim is None:
            world.deployment.become(spec(group(least=wanted), generation=generation))
        elif what == "scale":
            wanted = chance.randint(1, 4)
            world.deployment.become(spec(group(least=wanted), generation=generation))
        elif what == "speak":
            victim.is_cut = False
        elif victim.state is not None:
            victim.is_cut |= what == "cut"
            victim.answers &= what == "speak"
            if what == "gone":
                victim.is_gone = True
            elif what == "end":
                victim.state = ServingState.ENDED
    for actor in world.actors.values():
        actor.is_cut = False
    world.settle()
    assert len(world.ready()) == len(world.actors) == wanted
