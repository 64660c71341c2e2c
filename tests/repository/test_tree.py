"""What lies below a model's folder, and which links lead out of it."""

import os

import pytest

from inferd.repository.tree import MAX_DEPTH, entries_of, link_out, walk


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def paths(folder):
    return [entry.path for entry in walk(folder)]


def test_files_are_reported_in_order_with_size_and_time(tmp_path):
    write(tmp_path / "b" / "c.txt", "four")
    write(tmp_path / "a.txt")
    os.utime(tmp_path / "a.txt", ns=(7, 8))
    first, second = walk(tmp_path)
    assert first == ("a.txt", 1, 8)
    assert (second.path, second.size) == ("b/c.txt", 4)


@pytest.mark.parametrize(
    "noise",
    ["__pycache__/m.pyc", "1/__pycache__/m.pyc", ".m.swp", "1/.git/x", "m~", "#m#", "1/m.pyc"],
)
def test_what_python_and_editors_leave_behind_is_passed_over(tmp_path, noise):
    write(tmp_path / noise)
    write(tmp_path / "1" / "m.py")
    assert paths(tmp_path) == ["1/m.py"]


def test_links_are_followed_and_loops_end(tmp_path):
    write(tmp_path / "store" / "m.onnx", "model")
    model = tmp_path / "model"
    model.mkdir()
    (model / "1").symlink_to(tmp_path / "store")
    (model / "2").mkdir()
    (model / "2" / "back").symlink_to(model)
    (model / "broken").symlink_to("nowhere")
    assert [(e.path, e.size) for e in walk(model) if e.path.count("/") == 1] == [("1/m.onnx", 5)]
    assert len(paths(model)) < 10


def test_a_folder_nested_without_end_is_not_read_to_its_end(tmp_path):
    deep = tmp_path
    for _ in range(MAX_DEPTH + 5):
        deep /= "d"
    write(deep / "file")
    assert paths(tmp_path) == []
    assert link_out(tmp_path, tmp_path) is None


def test_what_is_not_there_has_no_files(tmp_path):
    assert paths(tmp_path / "nowhere") == []
    assert list(entries_of(tmp_path / "nowhere")) == []


def test_a_model_file_or_a_folder_in_its_place(tmp_path):
    write(tmp_path / "m.onnx", "model")
    write(tmp_path / "other")
    write(tmp_path / "m.savedmodel" / "graph")
    assert [(e.path, e.size) for e in entries_of(tmp_path / "m.onnx")] == [("m.onnx", 5)]
    assert [e.path for e in entries_of(tmp_path / "m.savedmodel")] == ["graph"]


def test_links_that_stay_inside_do_not_lead_out(tmp_path):
    write(tmp_path / "repo" / "m" / "1" / "m.onnx")
    (tmp_path / "repo" / "n").symlink_to("m")
    (tmp_path / "repo" / "m" / "2").symlink_to(tmp_path / "repo" / "m" / "1")
    link = tmp_path / "link to the repository"
    link.symlink_to(tmp_path / "repo")
    for root in (tmp_path / "repo", link):
        assert link_out(root / "m", root) is None
        assert link_out(root / "n", root) is None


@pytest.mark.parametrize("place", ["m", "m/1", "m/1/m.onnx", "m/config.pbtxt", "m/1/.hidden"])
def test_a_link_that_leads_out_is_found_wherever_it_is(tmp_path, place):
    root = tmp_path / "repo"
    write(tmp_path / "repository of another" / "1" / "m.onnx")
    (root / place).parent.mkdir(parents=True)
    (root / place).symlink_to(tmp_path / "repository of another")
    assert link_out(root / "m", root) == place


def test_a_link_that_leads_out_is_found_however_deep_it_lies(tmp_path):
    place = f"m/{'d/' * 100}x"
    deep = tmp_path / "repo" / "m"
    deep.mkdir(parents=True)
    for _ in range(100):
        deep /= "d"
        deep.mkdir()
    (deep / "x").symlink_to("/etc")
    assert link_out(tmp_path / "repo" / "m", tmp_path / "repo") == place


def test_a_link_to_what_is_not_there_leads_out_as_well(tmp_path):
    root = tmp_path / "repo"
    (root / "m").mkdir(parents=True)
    (root / "m" / "x").symlink_to("/nowhere/at all")
    assert link_out(root / "m", root) == "m/x"
