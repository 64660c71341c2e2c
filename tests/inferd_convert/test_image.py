import numpy as np

from inferd_convert.image import Window, channels_first, channels_last


def test_a_window_slides_over_two_dims_more_than_it_has():
    assert Window([3], [1], [1], [0, 0]).rank == 3
    assert Window([3, 3], [1, 1], [1, 1], [0] * 4).rank == 4


class Drawn:
    """A graph that notes what is added to it."""

    def __init__(self):
        self.added = []

    def add(self, op, *inputs, **attributes):
        self.added.append((op, inputs, attributes))

    def transpose(self, value, order):
        return np.transpose(value, order)


def test_what_a_format_says_of_pads_takes_the_place_of_the_window_s():
    graph, window = Drawn(), Window([3, 2], [1, 2], [1, 1], [1, 1, 0, 0])
    window.convolve(graph, "Conv", ("x", "w", None))
    window.convolve(graph, "Conv", ("x", "w", "b"), pads=None, auto_pad="VALID")
    (_, _, plain), (_, operands, other) = graph.added
    assert (plain["pads"], plain["kernel_shape"], plain["rank"]) == ([1, 1, 0, 0], [3, 2], 4)
    assert (operands, other["pads"], other["auto_pad"]) == (("x", "w", "b"), None, "VALID")


def test_channels_move_to_the_front_and_back():
    image = np.zeros((1, 5, 6, 3))
    first = channels_first(Drawn(), image, 4)
    assert first.shape == (1, 3, 5, 6)
    assert channels_last(Drawn(), first, 4).shape == image.shape
