"""TensorFlow's messages, written by hand: TensorFlow itself is not needed."""

import pytest


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded(*fields):
    """Return a message of (number, int, str or bytes) fields."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def shape(*dims):
    return encoded(*((2, encoded((1, dim))) for dim in dims))


def node(name, op, *inputs, **attributes):
    entries = [(5, encoded((1, key), (2, value))) for key, value in attributes.items()]
    return encoded((1, name), (2, op), *((3, one) for one in inputs), *entries)


def graph_def(*nodes, functions=()):
    library = [(1, encoded((1, encoded((1, name))), *((3, one) for one in inside)))
               for name, inside in functions]  # fmt: skip
    return encoded(*((1, one) for one in nodes), (2, encoded(*library)))


def placeholder(name, kind=1, dims=(-1, 3)):
    return node(name, "Placeholder", dtype=encoded((6, kind)), shape=encoded((7, shape(*dims))))


def tensor(name, kind=1, dims=(-1, 3)):
    return encoded((1, name), (2, kind), (3, shape(*dims)))


def signature(inputs, outputs):
    ins = [(1, encoded((1, key), (2, info))) for key, info in inputs.items()]
    return encoded(*ins, *((2, encoded((1, key), (2, info))) for key, info in outputs.items()))


def saved_model(graph, tag="serve", more=(), **signatures):
    entries = [(5, encoded((1, key), (2, one))) for key, one in signatures.items()]
    return encoded((1, 1), (2, encoded((1, encoded((4, tag))), (2, graph), *more, *entries)))


@pytest.fixture
def write():
    """The functions of this module."""
    import types

    return types.SimpleNamespace(**{k: v for k, v in globals().items() if callable(v)})
