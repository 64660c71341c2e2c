import gzip

from inferd.ui.files import LARGEST_BYTES, page_folder, read_files


def test_the_files_of_a_folder_and_those_below_are_read(page):
    found = read_files(page)
    assert sorted(found) == ["app.js", "index.html", "vendor/plot.css"]
    assert found["index.html"].body == (page / "index.html").read_bytes()
    assert found["index.html"].type == b"text/html; charset=utf-8"
    assert found["app.js"].type == b"text/javascript; charset=utf-8"


def test_a_file_is_zipped_if_that_makes_it_smaller(page):
    found = read_files(page)
    assert gzip.decompress(found["index.html"].zipped) == found["index.html"].body
    assert found["vendor/plot.css"].zipped == b""


def test_a_tag_tells_what_a_file_contains(page):
    before = read_files(page)
    assert read_files(page) == before
    (page / "app.js").write_bytes(b"export const ten = 11;\n" * 10)
    after = read_files(page)
    assert after["app.js"].tag != before["app.js"].tag
    assert after["index.html"].tag == before["index.html"].tag
    assert len({file.tag for file in after.values()} | {after["app.js"].zipped_tag}) == 4


def test_a_file_that_is_too_large_is_left_out(page):
    (page / "huge.js").write_bytes(b" " * (LARGEST_BYTES + 1))
    assert "huge.js" not in read_files(page)


def test_without_a_folder_there_is_no_file(tmp_path):
    assert read_files(tmp_path / "nowhere") == {}


def test_the_page_is_part_of_the_package():
    assert page_folder().name == "static"
