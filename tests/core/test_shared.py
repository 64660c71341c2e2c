import gc
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import pytest

from inferd.core.shared import Shared, fingerprint


class Model:
    pass


def test_a_model_is_loaded_once_for_those_who_hold_it():
    shared = Shared()
    held = shared.get(("a", 1), Model)
    assert shared.get(("a", 1), Model) is held
    assert shared.get(("a", 2), Model) is not held


def test_a_model_that_nobody_holds_is_loaded_anew():
    shared, made = Shared(), []
    for _ in range(2):
        shared.get("a", lambda: made.append(1) or Model())
        gc.collect()
    assert len(made) == 2


def test_a_model_that_fails_to_load_may_be_tried_again():
    shared = Shared(one_by_one=True)
    with pytest.raises(ZeroDivisionError):
        shared.get("a", lambda: 1 / 0)
    assert isinstance(shared.get("a", Model), Model)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_several_models_load_at_once_unless_they_must_not(one_by_one):
    shared, meeting = Shared(one_by_one=one_by_one), Barrier(2)

    def load():
        meeting.wait(0.2 if one_by_one else 10)
        return Model()

    with ThreadPoolExecutor(2) as pool:
        loading = [pool.submit(shared.get, key, load) for key in "ab"]
    expected = BrokenBarrierError if one_by_one else type(None)
    assert [type(one.exception()) for one in loading] == [expected] * 2


def test_a_replaced_file_has_another_fingerprint(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"1234")
    os.utime(file, ns=(1, 5))
    [before] = fingerprint([file])
    assert before == (str(file), 5, 4)
    os.utime(file, ns=(1, 6))
    assert fingerprint([file]) != [before]
