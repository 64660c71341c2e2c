from inferd.core.shared import Pool


def test_what_is_given_back_is_taken_again_and_made_only_if_all_are_in_use():
    made = iter(range(10))
    pool = Pool(lambda: next(made))
    first, second = pool.take(), pool.take()
    assert (first, second) == (0, 1)
    pool.give(second)
    assert [pool.take(), pool.take()] == [1, 2]


def test_a_cleared_pool_makes_anew():
    made = iter(range(10))
    pool = Pool(lambda: next(made))
    pool.give(pool.take())
    pool.clear()
    assert pool.take() == 1
