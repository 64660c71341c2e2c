from inferd.compiled import mypyc_attr


def test_the_interpreter_leaves_a_class_as_it_is():
    class Plain:
        pass

    assert mypyc_attr(allow_interpreted_subclasses=True, native_class=False)(Plain) is Plain
