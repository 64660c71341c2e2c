"""Operators of Caffe2 with arguments and inputs of any kind that Caffe2 takes, made at random.

`CASES` has for each operator a function of (dice, arrays) that returns arguments, inputs and the
number of outputs. `dice` is a random.Random, `arrays` a numpy Generator.
"""

import numpy as np

# --- arrays ---


def dims(dice, least=1, most=4, top=5):
    return tuple(dice.randint(1, top) for _ in range(dice.randint(least, most)))


def reals(arrays, *shape):
    return arrays.standard_normal(shape).astype(np.float32)


def above_zero(arrays, *shape):
    return (arrays.random(shape) + 0.1).astype(np.float32)


def truths(arrays, *shape):
    return arrays.random(shape) > 0.5


def wholes(arrays, low, high, shape, dtype=np.int32):
    return arrays.integers(low, high, shape).astype(dtype)


def index_type(dice):
    return dice.choice((np.int32, np.int64))


def maybe(dice, chance=0.5):
    return dice.random() < chance


# --- windows ---


def window(dice, count, *, is_pool=False, with_dilation=True, legacy=(0, 0, 0, 1, 2, 3)):
    """Return arguments of a window in one of the three ways to write them, and its size."""
    legacy_pad = dice.choice(legacy)
    kernel = [dice.randint(1, 3) for _ in range(count)]
    strides = [dice.randint(1, 3) for _ in range(count)]
    dilations = [1] * count
    if with_dilation and legacy_pad < 2:
        dilations = [dice.randint(1, 2) for _ in range(count)]
    if legacy_pad == 3 and is_pool:  # a window outside of the image is undefined in Caffe2
        strides = [min(pair) for pair in zip(strides, kernel, strict=True)]
    most = [size - 1 if is_pool else 2 for size in kernel * 2]
    pads = [dice.randint(0, one) for one in most]
    ways = ["list", "one", "each"] if count == 2 else ["list"]
    way = dice.choice(ways)
    args = {}
    if way == "one":
        kernel, strides, dilations = ([sizes[0]] * 2 for sizes in (kernel, strides, dilations))
        if legacy_pad == 3 and is_pool:
            strides = [min(strides[0], kernel[0])] * 2
        pads = [min(pads[0], kernel[0] - 1 if is_pool else 2)] * 4
        args = {"kernel": kernel[0], "stride": strides[0], "dilation": dilations[0], "pad": pads[0]}
    elif way == "each":
        for name, sizes in (("kernel", kernel), ("stride", strides), ("dilation", dilations)):
            args |= {f"{name}_h": sizes[0], f"{name}_w": sizes[1]}
        args |= {f"pad_{side}": pad for side, pad in zip("tlbr", pads, strict=True)}
    else:
        args = {"kernels": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if set(dilations) == {1}:
        args = {name: one for name, one in args.items() if not name.startswith("dilation")}
    if legacy_pad in (1, 2):
        args = {name: one for name, one in args.items() if not name.startswith("pad")}
    if legacy_pad:
        args["legacy_pad"] = legacy_pad
    return args, kernel


def image(arrays, order, channels, sizes):
    shape = (*sizes, channels) if order == "NHWC" else (channels, *sizes)
    return reals(arrays, 2, *shape)


def order_of(dice, args, count=2):
    order = dice.choice(("NCHW", "NHWC")) if count == 2 else "NCHW"
    if order == "NHWC" or maybe(dice, 0.2):
        args["order"] = order
    return order


def filters(arrays, order, first, second, kernel):
    shape = (first, *kernel, second) if order == "NHWC" else (first, second, *kernel)
    return reals(arrays, *shape)


def conv(count=None):
    def made(dice, arrays):
        spatial = count or dice.choice((1, 2, 2, 3))
        args, kernel = window(dice, spatial)
        order, group = order_of(dice, args, spatial), dice.choice((1, 1, 2))
        fan_in, fan_out = dice.randint(1, 3), dice.randint(1, 2) * group
        if group > 1:
            args["group"] = group
        sizes = [dice.randint(5, 8) for _ in range(spatial)]
        inputs = [
            image(arrays, order, fan_in * group, sizes),
            filters(arrays, order, fan_out, fan_in, kernel),
        ]
        return args, inputs + [reals(arrays, fan_out)] * maybe(dice), 1

    return made


def conv_transpose(count=None):
    def made(dice, arrays):
        spatial = count or 2
        args, kernel = window(dice, spatial, is_pool=True, with_dilation=False, legacy=(0, 0, 1))
        order, group = order_of(dice, args, spatial), dice.choice((1, 1, 2))
        group = 1 if order == "NHWC" else group
        if maybe(dice, 0.2):  # which it does not have
            args["dilations"] = [2] * spatial
        if group > 1:
            args["group"] = group
        if spatial == 2 and maybe(dice) and "strides" not in args:
            step = args.get("stride") or min(args["stride_h"], args["stride_w"])
            args["adj"] = dice.randint(0, step - 1)
        fan_in, fan_out = dice.randint(1, 2) * group, dice.randint(1, 2)
        sizes = [dice.randint(4, 6) for _ in range(spatial)]
        inputs = [
            image(arrays, order, fan_in, sizes),
            filters(arrays, order, fan_in, fan_out, kernel),
        ]
        return args, inputs + [reals(arrays, fan_out * group)] * maybe(dice), 1

    return made


def pool(count=None, *, averages=False):
    def made(dice, arrays):
        spatial = count or dice.choice((1, 2, 2, 3))
        args, _ = window(dice, spatial, is_pool=True, with_dilation=False)
        if maybe(dice, 0.2):
            args = {"global_pooling": 1}
        elif averages and maybe(dice, 0.4):
            args["count_include_pad"] = 1
        order = order_of(dice, args, spatial)
        return args, [image(arrays, order, 3, [dice.randint(4, 8) for _ in range(spatial)])], 1

    return made


# --- matrices ---


def fully_connected(dice, arrays, *, transposed=False):
    shape = dims(dice, 2)
    axis = dice.randint(1, len(shape) - 1)
    args = {"axis": dice.choice((axis, axis - len(shape)))} if axis > 1 or maybe(dice) else {}
    fan_in, fan_out = int(np.prod(shape[axis:])), dice.randint(1, 4)
    weight = (fan_in, fan_out) if transposed else (fan_out, fan_in)
    return args, [reals(arrays, *shape), reals(arrays, *weight), reals(arrays, fan_out)], 1


def turned_pair(dice, arrays, args, left=(), right=()):
    rows, inner, columns = (dice.randint(1, 4) for _ in range(3))
    a, b = (rows, inner), (inner, columns)
    if maybe(dice):
        args["trans_a"], a = 1, a[::-1]
    if maybe(dice):
        args["trans_b"], b = 1, b[::-1]
    return [reals(arrays, *left, *a), reals(arrays, *right, *b)]


def mat_mul(dice, arrays):
    args = {}
    if maybe(dice, 0.3):
        return {"axis_a": 2}, [reals(arrays, 2, 3, 4), reals(arrays, 4, 5)], 1
    return args, turned_pair(dice, arrays, args), 1


def batch_mat_mul(dice, arrays):
    args, batch = {}, dims(dice, 1, 2, 3)
    if maybe(dice, 0.1):  # two vectors
        size = dice.randint(1, 4)
        return {"broadcast": 1}, [reals(arrays, size), reals(arrays, size)], 1
    other = batch
    if maybe(dice):
        args["broadcast"], other = 1, dice.choice((batch, batch[1:], ()))
    return args, turned_pair(dice, arrays, args, batch, other), 1


def alike(count):
    def made(dice, arrays):
        shape = dims(dice)
        number = count or dice.randint(1, 4)
        return {}, [reals(arrays, *shape) for _ in range(number)], 1

    return made


# --- elements ---


def unary(make=reals, **choices):
    """Return the cases of an operator of one input; each of `choices` may be given or not."""

    def made(dice, arrays):
        args = {name: dice.choice(values) for name, values in choices.items() if maybe(dice)}
        return args, [make(arrays, *dims(dice))], 1

    return made


def between(arrays, *shape):
    return np.tanh(reals(arrays, *shape)) * np.float32(0.95)


def not_near_zero(arrays, *shape):
    numbers = reals(arrays, *shape)
    return numbers + np.sign(numbers)


def cast(dice, arrays):
    to = dice.choice((1, 2, 5, 6, 10, 13, "float", "INT32", "int64", "bool", "double", "uint8"))
    shape = dims(dice)
    given = dice.choice((above_zero(arrays, *shape) * 9, wholes(arrays, 0, 9, shape)))
    return {"to": to}, [given], 1


def prelu(dice, arrays):
    shape = dims(dice, 2)
    args = {"order": "NHWC"} if maybe(dice) else {}
    count = shape[-1] if args else shape[1]
    return args, [reals(arrays, *shape), reals(arrays, dice.choice((count, 1)))], 1


def binary(make):
    """Return the cases of an operator of two inputs, broadcast in the old ways and in numpy's."""

    def made(dice, arrays):
        shape, args = dims(dice, 2), {}
        way = dice.choice(("same", "tail", "from", "one", "letter", "numpy"))
        other = shape
        if way == "tail":
            args, other = {"broadcast": 1}, shape[dice.randint(0, len(shape) - 1) :]
        elif way == "from":
            axis = dice.randint(0, len(shape) - 1)
            args, other = {"broadcast": 1, "axis": axis}, shape[axis : axis + dice.randint(1, 2)]
        elif way == "one":
            args, other = {"broadcast": 1}, (1,)
        elif way == "letter":
            shape, order = (2, 3, 4, 5), dice.choice(("NCHW", "NHWC"))
            letter = dice.choice("CHW")
            args = {"broadcast": 1, "axis_str": letter, "order": order}
            other = (shape[order.index(letter)],)
        elif way == "numpy":
            other = tuple(1 if maybe(dice, 0.3) else one for one in shape)[
                dice.randint(0, len(shape) - 1) :
            ]
        return args, make(dice, arrays, shape, other), 1

    return made


def numbers(dice, arrays, shape, other):
    if maybe(dice):
        return [reals(arrays, *shape), not_near_zero(arrays, *other)]
    dtype = index_type(dice)
    return [wholes(arrays, -9, 9, shape, dtype), wholes(arrays, 1, 5, other, dtype)]


def two_truths(dice, arrays, shape, other):
    return [truths(arrays, *shape), truths(arrays, *other)]


def few_values(dice, arrays, shape, other):
    dtype = dice.choice((np.int32, np.int64, np.float32, np.bool_))
    return [wholes(arrays, 0, 3, one, dtype) for one in (shape, other)]


def power(dice, arrays):
    shape = dims(dice)
    if maybe(dice):
        return {}, [above_zero(arrays, *shape), reals(arrays, *shape)], 1
    return {"exponent": dice.choice((2.0, 0.5, -1.0, 1.5))}, [above_zero(arrays, *shape)], 1


def where(dice, arrays):
    shape = dims(dice)
    args = {"broadcast_on_rows": 1} if maybe(dice) else {}
    condition = truths(arrays, *(shape[:1] if args else shape))
    make = dice.choice((reals, truths))
    return args, [condition, make(arrays, *shape), make(arrays, *shape)], 1


# --- normalisation ---


def with_axis(least=1, **more):
    def made(dice, arrays):
        shape = dims(dice, least)
        args = {"axis": dice.randint(-len(shape), len(shape) - 1)} if maybe(dice, 0.7) else {}
        return args | more, [reals(arrays, *shape)], 1

    return made


def normalization(count, channels=(2, 4), outputs=1, **fixed):
    """Return the cases of an operator with `count` parameters for each channel."""

    def made(dice, arrays):
        args = dict(fixed)
        order, number = order_of(dice, args), dice.choice(channels)
        if maybe(dice) and "size" not in args:
            args["epsilon"] = dice.choice((1e-3, 1e-4))
        parameters = [above_zero(arrays, number) for _ in range(count)]
        x = image(arrays, order, number, [dice.randint(2, 4) for _ in range(2)])
        return args, [x, *parameters], outputs

    return made


def lrn(dice, arrays):
    args = {"size": dice.choice((1, 3, 5)), "alpha": 0.1, "beta": 0.75}
    if maybe(dice):
        args["bias"] = 2.0
    order = order_of(dice, args)
    return args, [image(arrays, order, 6, (2, 3))], dice.choice((1, 2))


def layer_norm(dice, arrays):
    shape = dims(dice, 2)
    axis = dice.randint(1, len(shape) - 1)
    args = {"axis": dice.choice((axis, axis - len(shape)))} if axis > 1 or maybe(dice) else {}
    inputs = [reals(arrays, *shape)]
    if maybe(dice):
        args["elementwise_affine"] = 1
        inputs += [reals(arrays, *shape[axis:]) for _ in range(2)]
    return args, inputs, 3


# --- reductions ---


def reduce(dice, arrays):
    shape, args = dims(dice), {}
    if maybe(dice, 0.7):
        axes = sorted(dice.sample(range(len(shape)), dice.randint(1, len(shape))))
        args["axes"] = [dice.choice((axis, axis - len(shape))) for axis in axes]
    if maybe(dice):
        args["keepdims"] = dice.choice((0, 1))
    return args, [reals(arrays, *shape)], 1


def reduce_side(dice, arrays):
    shape = dims(dice, 2)
    args = {"num_reduce_dim": dice.randint(0, len(shape))} if maybe(dice) else {}
    return args, [reals(arrays, *shape)], 1


def arg(dice, arrays):
    shape, args = dims(dice), {}
    if maybe(dice, 0.7):
        args["axis"] = dice.randint(0, len(shape) - 1)
    if maybe(dice):
        args["keepdims"] = dice.choice((0, 1))
    return args, [reals(arrays, *shape)], 1


def lengths(dice, arrays):
    return wholes(arrays, 0, 4, (dice.randint(1, 4),))


def lengths_of(dice, arrays):
    sizes = lengths(dice, arrays)
    return {}, [reals(arrays, int(sizes.sum()), *dims(dice, 0, 2)), sizes], 1


def sparse_lengths(dice, arrays, *, weighted=False):
    sizes, rows = lengths(dice, arrays), dice.randint(1, 4)
    index = wholes(arrays, 0, rows, (int(sizes.sum()),), index_type(dice))
    weights = [reals(arrays, len(index))] if weighted else []
    dtype = dice.choice((np.float32, np.float16))
    return {}, [reals(arrays, rows, dice.randint(1, 4)).astype(dtype), *weights, index, sizes], 1


# --- shapes ---


def reshape(dice, arrays):
    x = reals(arrays, *dims(dice))
    shape = dice.choice(([-1], [0, -1], [x.size], [1, -1], [-1, 1]))
    if maybe(dice):
        return {"shape": shape}, [x], 2
    return {}, [x, np.array(shape, index_type(dice))], 2


def flatten(dice, arrays):
    shape = dims(dice)
    args = {"axis": dice.randint(0, len(shape))} if maybe(dice) else {}
    return args, [reals(arrays, *shape)], 1


def squeeze(dice, arrays):
    shape = list(dims(dice))
    chosen = sorted(dice.sample(range(len(shape)), dice.randint(1, len(shape))))
    for index in chosen:
        shape[index] = 1
    return {"dims": chosen}, [reals(arrays, *shape)], 1


def expand_dims(dice, arrays):
    shape, count = dims(dice), dice.randint(1, 2)
    chosen = sorted(dice.sample(range(len(shape) + count), count))
    return {"dims": chosen}, [reals(arrays, *shape)], 1


def transpose(dice, arrays):
    shape = dims(dice)
    axes = dice.sample(range(len(shape)), len(shape))
    return dice.choice(({}, {"axes": axes})), [reals(arrays, *shape)], 1


def of_dims(least, most=4):
    return lambda dice, arrays: ({}, [reals(arrays, *dims(dice, least, most))], 1)


def shape_of(dice, arrays):
    shape = dims(dice)
    args = {"axes": [dice.randint(0, len(shape) - 1)]} if maybe(dice) else {}
    return args, [reals(arrays, *shape)], 1


def axis_or_order(dice, shape):
    """Return arguments that name an axis, and the axis."""
    if maybe(dice, 0.3) and len(shape) == 4:
        order = dice.choice(("NCHW", "NHWC"))
        return {"order": order}, 3 if order == "NHWC" else 1
    axis = dice.randint(0, len(shape) - 1)
    return {"axis": dice.choice((axis, axis - len(shape)))}, axis


def concat(dice, arrays):
    shape, count = dims(dice, 1), dice.randint(1, 3)
    if maybe(dice, 0.3):
        args = {"axis": dice.randint(0, len(shape)), "add_axis": 1}
        return args, [reals(arrays, *shape) for _ in range(count)], 2
    args, axis = axis_or_order(dice, shape)
    parts = []
    for _ in range(count):
        own = list(shape)
        own[axis] = dice.randint(1, 3)
        parts.append(reals(arrays, *own))
    return args, parts, 2


def split(dice, arrays):
    shape = list(dims(dice))
    args, axis = axis_or_order(dice, shape)
    sizes = [dice.randint(1, 3) for _ in range(dice.randint(1, 3))]
    shape[axis] = sum(sizes)
    if "order" not in args and maybe(dice):
        return args, [reals(arrays, *shape), np.array(sizes, np.int32)], len(sizes)
    return args | {"split": sizes}, [reals(arrays, *shape)], len(sizes)


def slice_of(dice, arrays):
    shape = dims(dice)
    axis = dice.randint(0, len(shape) - 1)
    first = dice.randint(0, shape[axis] - 1)
    end = dice.randint(first, shape[axis])
    starts, ends = [0] * (axis + 1), [-1] * (axis + 1)
    starts[axis] = dice.choice((first, first - shape[axis] - 1))
    ends[axis] = dice.choice((end, end - shape[axis] - 1))
    if maybe(dice):
        return {"starts": starts, "ends": ends}, [reals(arrays, *shape)], 1
    dtype = index_type(dice)
    return {}, [reals(arrays, *shape), np.array(starts, dtype), np.array(ends, dtype)], 1


def tile(dice, arrays):
    x = reals(arrays, *dims(dice))
    tiles, axis = dice.randint(1, 3), dice.randint(0, x.ndim - 1)
    vectors = [np.array([tiles], np.int32), np.array([axis], np.int32)]
    given = dice.randint(0, 2)
    args = {"tiles": tiles, "axis": axis}
    for name in list(args)[:given]:
        del args[name]
    return args, [x, *vectors[:given]], 1


def numpy_tile(dice, arrays):
    x = reals(arrays, *dims(dice))
    return {}, [x, wholes(arrays, 1, 3, (x.ndim,), np.int64)], 1


def channel_shuffle(dice, arrays):
    args = {"group": dice.choice((1, 2, 4)), "kernel": 1}
    order = order_of(dice, args)
    return args, [image(arrays, order, 4, (2, 3))], 1


def glu(dice, arrays):
    shape = list(dims(dice, 1, 3))
    axis = dice.randint(0, len(shape) - 1)
    args = {} if axis == len(shape) - 1 and maybe(dice) else {"dim": axis}
    shape[axis] *= 2
    return args, [reals(arrays, *shape)], 1


# --- picked ---


def gather(dice, arrays):
    shape = dims(dice, 1, 3)
    axis = dice.randint(0, len(shape) - 1) if maybe(dice) else 0
    args, places = {"axis": axis} if axis else {}, dims(dice, 1, 2)
    if axis and maybe(dice):
        args["match_outer"], places = 1, (*shape[:axis], *places)
    index = wholes(arrays, 0, shape[axis], places, index_type(dice))
    return args, [reals(arrays, *shape), index], 1


def batch_gather(dice, arrays):
    shape = dims(dice, 2, 3)
    index = wholes(arrays, 0, shape[1], dims(dice, 1, 2), index_type(dice))
    return {}, [reals(arrays, *shape), index], 1


def top_k(dice, arrays):
    shape = dims(dice, 1, 3)
    axis = dice.randint(0, len(shape) - 1)
    args = {"k": dice.randint(1, shape[axis] + 1)}
    if axis != len(shape) - 1 or maybe(dice):
        args["axis"] = axis
    return args, [reals(arrays, *shape)], dice.choice((2, 3))


def resized(*orders):
    def made(dice, arrays):
        pair = [dice.choice((0.5, 0.7, 1.0, 1.1, 1.5, 2.0, 2.3, 3.0)) for _ in range(2)]
        args = {}
        order = dice.choice(orders)
        if order == "NHWC":
            args["order"] = order
        x = image(arrays, order, 3, [dice.randint(2, 6) for _ in range(2)])
        if maybe(dice):
            return args, [x, np.array(pair, np.float32)], 1
        return args | {"height_scale": pair[0], "width_scale": pair[1]}, [x], 1

    return made


def pad_image(dice, arrays):
    args = {f"pad_{side}": dice.randint(0, 2) for side in "tlbr"}
    if maybe(dice):
        args = {"pad": dice.randint(0, 2)}
    if maybe(dice, 0.7):
        args["mode"] = dice.choice(("constant", "reflect", "edge"))
    if maybe(dice):
        args["value"] = 1.5
    order = order_of(dice, args)
    return args, [image(arrays, order, 2, [dice.randint(3, 5) for _ in range(2)])], 1


def roi_align(dice, arrays):
    args = {
        "pooled_h": dice.randint(1, 3),
        "pooled_w": dice.randint(1, 3),
        "sampling_ratio": dice.choice((-1, 0, 1, 2)),
        "spatial_scale": dice.choice((0.5, 1.0)),
    }
    if maybe(dice):
        args["aligned"] = 1
    order, count = order_of(dice, args), dice.randint(1, 3)
    corners = np.sort(arrays.random((count, 2, 2)) * 5, axis=1).reshape(count, 4)
    if maybe(dice):
        corners = np.concatenate([wholes(arrays, 0, 2, (count, 1)), corners], axis=1)
    return args, [image(arrays, order, 2, (5, 6)), corners.astype(np.float32)], 1


# --- fills ---


def constant_fill(dice, arrays):
    args = dice.choice(
        (
            *(
                {},
                {"value": 1.5},
                {"value": 7},
                {"value": 2.0, "dtype": 1},
                {"value": 3, "dtype": 2},
            ),
            *({"value": 4, "dtype": 10}, {"value": 1, "dtype": 5}),
        )
    )
    shape = dims(dice)
    match dice.choice(("argument", "like", "read")):
        case "argument":
            return args | {"shape": list(shape)}, [], 1
        case "like":
            extra = {"extra_shape": [2]} if maybe(dice) else {}
            return args | extra, [reals(arrays, *shape)], 1
    return args | {"input_as_shape": 1}, [np.array(shape, np.int64)], 1


def given(low, high, *, is_real=False):
    def made(dice, arrays):
        shape = dims(dice)
        numbers = wholes(arrays, low, high, shape, np.int64).reshape(-1).tolist()
        values = [one / 2 for one in numbers] if is_real else numbers
        return {"shape": list(shape), "values": values}, [], 1

    return made


CASES = {
    **{f"Conv{n}D" if n else "Conv": conv(n) for n in (None, 1, 2, 3)},
    **{f"ConvTranspose{n}D" if n else "ConvTranspose": conv_transpose(n) for n in (None, 1, 2, 3)},
    **{f"MaxPool{n}D" if n else "MaxPool": pool(n) for n in (None, 1, 2, 3)},
    **{f"AveragePool{n}D" if n else "AveragePool": pool(n, averages=True) for n in (None, 1, 2, 3)},
    "FC": fully_connected,
    "FCTransposed": lambda dice, arrays: fully_connected(dice, arrays, transposed=True),
    "MatMul": mat_mul,
    "BatchMatMul": batch_mat_mul,
    "DotProduct": alike(2),
    **dict.fromkeys(
        (
            *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Abs", "Floor", "Ceil"),
            *("Sign", "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Negative", "Sqr"),
            *("Cube", "Swish", "Copy", "Alias", "StopGradient", "EnsureCPUOutput"),
            *("CopyFromCPUInput", "CopyCPUToGPU", "CopyGPUToCPU", "FlattenToVec", "Size"),
        ),
        unary(),
    ),
    **dict.fromkeys(("Log", "Sqrt", "Rsqrt"), unary(above_zero)),
    **dict.fromkeys(("Asin", "Acos"), unary(between)),
    "Reciprocal": unary(not_near_zero),
    "Not": unary(truths),
    "LeakyRelu": unary(alpha=(0.1, 2.0)),
    "Elu": unary(alpha=(0.5, 2.0)),
    "Selu": unary(alpha=(1.5,), scale=(1.2,)),
    "HardSigmoid": unary(alpha=(0.3,), beta=(0.4,)),
    "Gelu": unary(fast_gelu=(0, 1)),
    "Clip": unary(min=(-0.5, 0.0), max=(0.2, 1.0)),
    "Cast": cast,
    "PRelu": prelu,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), binary(numbers)),
    **dict.fromkeys(("And", "Or", "Xor"), binary(two_truths)),
    **dict.fromkeys(("LT", "LE", "GT", "GE", "EQ", "NE"), binary(few_values)),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean"), alike(None)),
    "Pow": power,
    "Where": where,
    "Dropout": lambda dice, arrays: ({"is_test": 1}, [reals(arrays, *dims(dice))], 1),
    "Softmax": with_axis(2),
    "Normalize": with_axis(),
    "SpatialBN": normalization(4, is_test=1),
    "InstanceNorm": normalization(2, outputs=3),
    "GroupNorm": normalization(2, outputs=3, group=2),
    "LayerNorm": layer_norm,
    "LRN": lrn,
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"), reduce
    ),
    **{
        f"Reduce{side}{op}": reduce_side
        for side in ("Front", "Back")
        for op in ("Sum", "Mean", "Max")
    },
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("LengthsSum", "LengthsMean"), lengths_of),
    **dict.fromkeys(("SparseLengthsSum", "SparseLengthsMean"), sparse_lengths),
    "SparseLengthsWeightedSum": lambda dice, arrays: sparse_lengths(dice, arrays, weighted=True),
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "ExpandDims": expand_dims,
    "Transpose": transpose,
    **dict.fromkeys(("NCHW2NHWC", "NHWC2NCHW"), of_dims(3, 5)),
    "MergeDim": of_dims(2),
    "Shape": shape_of,
    **dict.fromkeys(("Concat", "DepthConcat"), concat),
    **dict.fromkeys(("Split", "DepthSplit"), split),
    "Slice": slice_of,
    "Tile": tile,
    "NumpyTile": numpy_tile,
    "ChannelShuffle": channel_shuffle,
    "Glu": glu,
    "Gather": gather,
    "BatchGather": batch_gather,
    "TopK": top_k,
    "ResizeNearest": resized("NCHW", "NHWC"),
    "UpsampleBilinear": resized("NCHW"),
    "PadImage": pad_image,
    "RoIAlign": roi_align,
    "ConstantFill": constant_fill,
    "GivenTensorFill": given(-9, 9, is_real=True),
    "GivenTensorDoubleFill": given(-9, 9, is_real=True),
    "GivenTensorBoolFill": given(0, 2),
    "GivenTensorInt16Fill": given(-(2**15), 2**15),
    "GivenTensorIntFill": given(-(2**31), 2**31),
    "GivenTensorInt64Fill": given(-(2**62), 2**62),
}
