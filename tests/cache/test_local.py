import asyncio
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.cache.local import ENTRY_BYTES, LocalStore


def run(coroutine):
    return asyncio.run(coroutine)


def room_for(count, size=100):
    return LocalStore(count * (size + ENTRY_BYTES))


def packed(number, size=100):
    return bytes([number]) * size


def told(store):
    return {family.name: family.samples[0][1] for family in store.families()}


def test_an_answer_is_found_under_its_key():
    async def go():
        shelf = room_for(3).shelf()
        await shelf.keep(b"a", packed(1))
        assert await shelf.find(b"a") == packed(1)
        assert await shelf.find(b"b") is None

    run(go())


def test_shelves_know_nothing_of_each_other():
    async def go():
        store = room_for(3)
        one, other = store.shelf(), store.shelf()
        await one.keep(b"a", packed(1))
        assert await other.find(b"a") is None

    run(go())


def test_the_answer_that_was_not_used_for_the_longest_time_goes_first():
    async def go():
        store = room_for(3)
        one, other = store.shelf(), store.shelf()
        await one.keep(b"a", packed(1))
        await other.keep(b"b", packed(2))
        await one.keep(b"c", packed(3))
        assert await one.find(b"a") is not None
        await other.keep(b"d", packed(4))
        assert await other.find(b"b") is None
        await other.keep(b"e", packed(5))
        assert await one.find(b"c") is None
        assert await one.find(b"a") is not None
        assert store.eviction_count == 2

    run(go())


def test_a_large_answer_takes_the_place_of_several():
    async def go():
        store = room_for(3)
        shelf = store.shelf()
        for number in range(3):
            await shelf.keep(bytes([number]), packed(number))
        await shelf.keep(b"large", packed(9, 200 + ENTRY_BYTES))
        assert await shelf.find(b"\2") is not None
        assert (len(store.entries), store.eviction_count) == (2, 2)
        assert store.used_bytes == store.size_bytes

    run(go())


def test_what_has_no_room_at_all_is_not_kept_and_nothing_goes_for_it():
    async def go():
        store = room_for(1)
        shelf = store.shelf()
        await shelf.keep(b"a", packed(1))
        await shelf.keep(b"b", packed(2, 101))
        assert await shelf.find(b"b") is None
        assert await shelf.find(b"a") == packed(1)

    run(go())


def test_a_store_too_small_for_anything_keeps_nothing():
    async def go():
        store = LocalStore(1)
        shelf = store.shelf()
        await shelf.keep(b"a", b"")
        assert await shelf.find(b"a") is None
        assert told(store)["nv_cache_util"] == 0

    run(go())


def test_the_second_answer_under_a_key_takes_the_place_of_the_first():
    async def go():
        store = room_for(3)
        shelf = store.shelf()
        await shelf.keep(b"a", packed(1))
        await shelf.keep(b"a", packed(2, 50))
        assert await shelf.find(b"a") == packed(2, 50)
        assert (len(store.entries), store.used_bytes) == (1, 50 + ENTRY_BYTES)
        assert store.eviction_count == 0

    run(go())


def test_a_cleared_shelf_gives_all_its_room_back():
    async def go():
        store = room_for(4)
        one, other = store.shelf(), store.shelf()
        for key in (b"a", b"b"):
            await one.keep(key, packed(1))
            await other.keep(key, packed(2))
        one.clear()
        one.clear()
        assert await one.find(b"a") is None
        assert await other.find(b"a") == packed(2)
        assert (len(store.entries), store.used_bytes) == (2, 2 * (100 + ENTRY_BYTES))
        await store.close()
        assert (len(store.entries), store.used_bytes) == (0, 0)

    run(go())


def test_the_metrics_have_tritons_names():
    async def go():
        store = room_for(4)
        await store.shelf().keep(b"a", packed(1))
        store.counts.hit_count, store.counts.miss_count = 3, 2
        store.counts.lookup_ns, store.counts.insertion_ns = 5999, 7001
        assert told(store) == {
            "nv_cache_util": 0.25,
            "nv_cache_num_entries": 1,
            "nv_cache_num_evictions": 0,
            "nv_cache_num_lookups": 5,
            "nv_cache_num_hits": 3,
            "nv_cache_num_misses": 2,
            "nv_cache_lookup_duration": 5,
            "nv_cache_insertion_duration": 7,
        }
        assert {family.kind for family in store.families()} == {"gauge"}

    run(go())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(0, 2), st.integers(0, 9), st.integers(0, 400)),
        st.tuples(st.just("find"), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("clear"), st.integers(0, 2)),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(STEPS)
def test_whatever_happens_the_books_are_right_and_the_newest_are_there(steps):
    """Compared with a list of all answers in the order of their use."""

    async def go():
        store = LocalStore(5 * ENTRY_BYTES)
        shelves = [store.shelf() for _ in range(3)]
        model = {}
        for what, shelf, *rest in steps:
            if what == "keep":
                key, size = rest
                if size + ENTRY_BYTES > store.size_bytes:
                    continue
                await shelves[shelf].keep(bytes([key]), bytes(size))
                model.pop((shelf, key), None)
                model[shelf, key] = size
                while sum(size + ENTRY_BYTES for size in model.values()) > store.size_bytes:
                    del model[next(iter(model))]
            elif what == "find":
                place = (shelf, *rest)
                found = await shelves[shelf].find(bytes(rest))
                assert (None if found is None else len(found)) == model.get(place)
                if place in model:
                    model[place] = model.pop(place)
            else:
                shelves[shelf].clear()
                model = {place: size for place, size in model.items() if place[0] != shelf}
            assert len(store.entries) == len(model)
            assert store.used_bytes == sum(size + ENTRY_BYTES for size in model.values())

    run(go())


def test_no_more_memory_is_taken_than_is_counted():
    async def go():
        store = LocalStore(1 << 20)
        shelf = store.shelf()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(5000):  # more than there is room for
            await shelf.keep(number.to_bytes(32, "little"), bytes(memoryview(bytes(64))))
        taken = tracemalloc.get_traced_memory()[0] - before
        assert len(store.entries) == (1 << 20) // (64 + ENTRY_BYTES)
        assert 0.5 * store.used_bytes < taken <= store.used_bytes

    tracemalloc.start()
    try:
        run(go())
    finally:
        tracemalloc.stop()


def test_a_closed_store_is_empty_and_may_be_filled_again():
    async def go():
        store = room_for(3)
        shelf = store.shelf()
        await shelf.keep(b"a", packed(1))
        await store.close()
        assert (len(store.entries), store.used_bytes) == (0, 0)
        await shelf.keep(b"b", packed(2))
        shelf.clear()
        assert (len(store.entries), store.used_bytes) == (0, 0)

    run(go())
