"""Caffe2's operators in numpy, as plainly as they can be said: what conversions are held against.

Each takes the arguments by name and the inputs, and returns the outputs.
"""

from math import ceil, erf, prod

import numpy as np

TYPES = {1: "f4", 2: "i4", 5: "?", 6: "u1", 7: "i1", 8: "u2", 9: "i2", 10: "i8", 12: "f2", 13: "f8"}
NAMES = {"float": "f4", "int32": "i4", "bool": "?", "uint8": "u1", "int64": "i8", "double": "f8"}


def compute(op, args, inputs, operators=None):
    """Return the outputs of an operator, which is one of `operators` or else of OPERATORS."""
    outputs = (operators or OPERATORS)[op](args, *inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def in_nchw(function):
    """Return a function for both orders of one that knows NCHW; its first output is turned."""

    def both(args, x, *others):
        if args.get("order") != "NHWC":
            return function(args, x, *others)
        outputs = function(args, np.moveaxis(x, -1, 1), *others)
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        return (np.moveaxis(first, 1, -1), *rest)

    return both


# --- windows ---


def sizes(args, name, dims):
    if name in args:
        return [args[name]] * 2
    if f"{name}_h" in args:
        return [args[f"{name}_h"], args[f"{name}_w"]]
    return args.get(f"{name}s", [1 if name != "adj" else 0] * dims)


def padding(args, dims):
    if "pad" in args:
        return [args["pad"]] * 4
    if "pad_t" in args:
        return [args[f"pad_{side}"] for side in "tlbr"]
    return args.get("pads", [0] * 2 * dims)


def frame(args, shape, kernel, strides, dilations):
    """Return how much is put before and behind each spatial dim, negative for what is cut off."""
    dims, legacy = len(kernel), args.get("legacy_pad", 0)
    pads = padding(args, dims)
    found = []
    for index, size in enumerate(shape):
        step, reach = strides[index], (kernel[index] - 1) * dilations[index] + 1
        head, tail = pads[index], pads[dims + index]
        if legacy == 1:
            head = tail = 0
        elif legacy == 2:
            needed = (ceil(size / step) - 1) * step + reach - size
            head = int(needed / 2)
            tail = needed - head
        elif legacy == 3:
            count = ceil((size + 2 * head - reach) / step) + 1
            if head > 0 and (count - 1) * step >= size + head:
                count -= 1
            tail = (count - 1) * step + reach - size - head
        found.append((head, tail))
    return found


def framed(x, edges, fill=0.0):
    """Return `x` with its spatial dims made longer by `fill`, or shorter."""
    padded = np.pad(
        x, [(0, 0)] * 2 + [(max(a, 0), max(b, 0)) for a, b in edges], constant_values=fill
    )
    cut = [
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(edges, padded.shape[2:], strict=True)
    ]
    return padded[(slice(None), slice(None), *cut)]


def windows(x, kernel, strides, dilations):
    """Return all windows of `x` as [N, C, *places, *kernel]."""
    dims = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + dims)))
    steps = tuple(slice(None, None, step) for step in (*strides, *dilations))
    return views[(slice(None), slice(None), *steps)]


def shapes_of(args, dims=2):
    for name in ("kernel", "stride", "dilation"):
        if f"{name}s" in args:
            dims = len(args[f"{name}s"])
    kernel = sizes(args, "kernel", dims)
    return kernel, sizes(args, "stride", len(kernel)), sizes(args, "dilation", len(kernel))


def conv(args, x, weight, bias=None):
    if args.get("order") == "NHWC":
        weight = np.moveaxis(weight, -1, 1)
    kernel, strides, dilations = shapes_of(args)
    x = framed(x, frame(args, x.shape[2:], kernel, strides, dilations))
    groups, dims = args.get("group", 1), len(kernel)
    parts = []
    for part, filters in zip(np.split(x, groups, 1), np.split(weight, groups), strict=True):
        seen = windows(part, kernel, strides, dilations)
        axes = (1, *range(2 + dims, 2 + 2 * dims))
        parts.append(np.moveaxis(np.tensordot(seen, filters, (axes, range(1, 2 + dims))), -1, 1))
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias.reshape(-1, *[1] * dims)


def conv_transpose(args, x, weight, bias=None):
    if args.get("order") == "NHWC":
        weight = np.moveaxis(weight, -1, 1)
    kernel, strides, _ = shapes_of(args)
    dims, groups, adj = len(kernel), args.get("group", 1), sizes(args, "adj", len(kernel))
    pads = [0] * 2 * dims if args.get("legacy_pad") == 1 else padding(args, dims)
    full = [
        (n - 1) * s + k + a for n, s, k, a in zip(x.shape[2:], strides, kernel, adj, strict=True)
    ]
    parts = []
    for part, filters in zip(np.split(x, groups, 1), np.split(weight, groups), strict=True):
        y = np.zeros((len(x), filters.shape[1], *full), np.float64)
        for place in np.ndindex(*x.shape[2:]):
            where = [
                slice(p * s, p * s + k) for p, s, k in zip(place, strides, kernel, strict=True)
            ]
            pixel = part[(slice(None), slice(None), *place)]
            y[(slice(None), slice(None), *where)] += np.tensordot(pixel, filters, 1)
        cut = [slice(pads[i], full[i] - pads[dims + i]) for i in range(dims)]
        parts.append(y[(slice(None), slice(None), *cut)])
    y = np.concatenate(parts, 1)
    y = y if bias is None else y + bias.reshape(-1, *[1] * dims)
    return y.astype(np.float32)


def pool(reduce, fill):
    def pooled(args, x):
        if args.get("global_pooling"):
            kernel = strides = x.shape[2:]
            dilations = [1] * len(kernel)
        else:
            kernel, strides, dilations = shapes_of(args)
        edges = frame(args, x.shape[2:], kernel, strides, dilations)
        axes = tuple(range(-len(kernel), 0))
        seen = windows(framed(x, edges, fill), kernel, strides, dilations)
        if reduce is np.max:
            return seen.max(axes)
        inside = windows(framed(np.ones_like(x), edges), kernel, strides, dilations)
        whole = args.get("count_include_pad")
        return seen.sum(axes) / (prod(kernel) if whole else inside.sum(axes))

    return in_nchw(pooled)


# --- matrices ---


def flat(x, axis):
    return x.reshape(prod(x.shape[: axis % x.ndim]), -1)


def fully_connected(transposed):
    def connected(args, x, weight, bias):
        axis = args.get("axis", 1) % x.ndim
        matrix = flat(weight, args.get("axis_w", 1))
        y = flat(x, axis) @ (matrix if transposed else matrix.T) + bias
        return y.reshape(*x.shape[:axis], -1)

    return connected


def mat_mul(args, a, b):
    a, b = flat(a, args.get("axis_a", 1)), flat(b, args.get("axis_b", 1))
    return (a.T if args.get("trans_a") else a) @ (b.T if args.get("trans_b") else b)


def batch_mat_mul(args, a, b):
    if a.ndim == b.ndim == 1:
        return np.array([a @ b])
    a = a.swapaxes(-1, -2) if args.get("trans_a") else a
    return a @ (b.swapaxes(-1, -2) if args.get("trans_b") else b)


# --- elements ---


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(args, x):
    if args.get("fast_gelu"):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def selu(args, x):
    alpha, scale = args.get("alpha", 1.6732632), args.get("scale", 1.0507010)
    return scale * np.where(x > 0, x, alpha * np.expm1(x))


def cast(args, x):
    to = args["to"]
    return x.astype(NAMES[to.lower()] if isinstance(to, str) else TYPES[to])


def prelu(args, x, slope):
    if args.get("order") != "NHWC" and slope.size > 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, x * slope)


def binary(function):
    def applied(args, a, b):
        if args.get("broadcast"):
            axis = args.get("axis", -1)
            if "axis_str" in args:
                axis = args.get("order", "NCHW").index(args["axis_str"])
            if b.size == 1:
                b = b.reshape(())
            elif axis != -1:
                b = b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))
        return function(a, b)

    return applied


def divide(a, b):
    return np.trunc(a / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b


def many(function):
    def applied(args, first, *others):
        for other in others:
            first = function(first, other)
        return first

    return applied


def where(args, condition, x, y):
    if args.get("broadcast_on_rows"):
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


# --- normalisation ---


def softmax(args, x):
    rows = flat(x, args.get("axis", 1))
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).reshape(x.shape)


def channels(vector, x):
    return vector.reshape(-1, *[1] * (x.ndim - 2))


def spatial_bn(args, x, scale, bias, mean, variance):
    deviation = np.sqrt(variance + args.get("epsilon", 1e-5))
    scale = scale / deviation
    return (x - channels(mean, x)) * channels(scale, x) + channels(bias, x)


def group_norm(args, x, scale, bias, count=None):
    groups = x.reshape(len(x), count or args.get("group", 32), -1)
    mean = groups.mean(2)
    deviation = np.sqrt(groups.var(2) + args.get("epsilon", 1e-5))
    normal = ((groups - mean[..., None]) / deviation[..., None]).reshape(x.shape)
    return normal * channels(scale, x) + channels(bias, x), mean, 1 / deviation


def instance_norm(args, x, scale, bias):
    return group_norm(args, x, scale, bias, x.shape[1])


def layer_norm(args, x, scale=None, bias=None):
    axis = args.get("axis", 1) % x.ndim
    rows = flat(x, axis)
    mean = rows.mean(1, keepdims=True)
    deviation = np.sqrt(rows.var(1, keepdims=True) + args.get("epsilon", 1e-5))
    y = ((rows - mean) / deviation).reshape(x.shape)
    if args.get("elementwise_affine"):
        y = y * scale + bias
    kept = (*x.shape[:axis], 1)
    return y, mean.reshape(kept), deviation.reshape(kept)


def lrn(args, x):
    size = args["size"]
    squares = np.pad(x**2, ((0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)))
    sums = sum(squares[:, start : start + x.shape[1]] for start in range(size))
    scale = args.get("bias", 1.0) + args["alpha"] / size * sums
    if args.get("order") == "NHWC":
        return x / scale ** args["beta"], np.moveaxis(scale, 1, -1)
    return x / scale ** args["beta"], scale


def normalize(args, x):
    length = np.sqrt((x**2).sum(args.get("axis", -1), keepdims=True))
    return x / np.maximum(length, 1e-12)


# --- reductions ---


def reduce(function):
    def reduced(args, x):
        axes = tuple({axis % x.ndim for axis in args["axes"]}) if "axes" in args else None
        return function(x, axis=axes, keepdims=bool(args.get("keepdims", 1)))

    return reduced


def l1(x, **options):
    return np.abs(x).sum(**options)


def l2(x, **options):
    return np.sqrt((x**2).sum(**options))


def side(function, front):
    def reduced(args, x):
        count = args.get("num_reduce_dim", 1)
        axes = tuple(range(count) if front else range(-count, 0))
        return function(x, axis=axes) if axes else x

    return reduced


def arg(function):
    def found(args, x):
        return function(x, axis=args.get("axis", -1), keepdims=bool(args.get("keepdims", 1)))

    return found


def segments(rows, lengths, mean):
    ends = np.cumsum(lengths)
    parts = [rows[end - size : end] for end, size in zip(ends, lengths, strict=True)]
    sums = [part.sum(0) / (max(len(part), 1) if mean else 1) for part in parts]
    return np.array(sums, np.float32).reshape(len(lengths), *rows.shape[1:])


def lengths_of(mean):
    return lambda args, rows, lengths: segments(rows, lengths, mean)


def sparse_lengths(mean):
    return lambda args, rows, index, lengths: segments(
        rows[index].astype(np.float32), lengths, mean
    )


def weighted(args, rows, weights, index, lengths):
    return segments(rows[index].astype(np.float32) * weights[:, None], lengths, mean=False)


# --- shapes ---


def reshape(args, x, shape=None):
    spec = args["shape"] if shape is None else shape.tolist()
    dims = [x.shape[i] if dim == 0 else dim for i, dim in enumerate(spec)]
    return x.reshape(dims), np.array(x.shape, np.int64 if shape is None else shape.dtype)


def channel_axis(args):
    return args["axis"] if "axis" in args else 3 if args.get("order") == "NHWC" else 1


def concat(args, *parts):
    axis = channel_axis(args)
    if args.get("add_axis"):
        parts = [np.expand_dims(part, axis) for part in parts]
    return np.concatenate(parts, axis), np.array([part.shape[axis] for part in parts], np.int32)


def split(args, x, lengths=None, count=None):
    axis = channel_axis(args)
    lengths = args.get("split") if lengths is None else lengths
    places = count if lengths is None else np.cumsum(lengths)[:-1]
    return tuple(np.split(x, places, axis))


def slice_of(args, x, starts=None, ends=None):
    starts = args["starts"] if starts is None else starts
    ends = args["ends"] if ends is None else ends
    bounds = [
        slice(*(bound + size + 1 if bound < 0 else bound for bound in pair))
        for *pair, size in zip(starts, ends, x.shape, strict=False)
    ]
    return x[tuple(bounds)]


def tile(args, x, tiles=None, axis=None):
    times = [1] * x.ndim
    axis = args["axis"] if axis is None else int(axis[0])
    times[axis] = args["tiles"] if tiles is None else int(tiles[0])
    return np.tile(x, times)


def channel_shuffle(args, x):
    groups = x.reshape(len(x), args["group"], -1, *x.shape[2:])
    return groups.swapaxes(1, 2).reshape(x.shape)


def glu(args, x):
    a, b = np.split(x, 2, args.get("dim", -1))
    return a * sigmoid(b)


# --- picked ---


def top_k(args, x):
    axis, k = args.get("axis", -1), args["k"]
    order = np.argsort(-x, axis, kind="stable")[_along(axis, k, x.ndim)]
    values = np.take_along_axis(x, order, axis)
    around = [(0, 0)] * x.ndim
    around[axis] = (0, k - order.shape[axis])
    places = np.take_along_axis(np.arange(x.size).reshape(x.shape), order, axis)
    found, places = (np.pad(one, around, constant_values=-1) for one in (order, places))
    return np.pad(values, around), found, places.ravel()


def _along(axis, k, ndim):
    cut = [slice(None)] * ndim
    cut[axis] = slice(k)
    return tuple(cut)


def scales_of(args, scales):
    if scales is not None:
        return scales
    return np.float32([args.get("height_scale", 1.0), args.get("width_scale", 1.0)])


def gather(args, x, index):
    axis = args.get("axis", 0)
    if not args.get("match_outer"):
        return x.take(index, axis)
    outer = index.shape[:axis]
    parts = [x[place].take(index[place], 0) for place in np.ndindex(*outer)]
    return np.reshape(parts, (*outer, *parts[0].shape))


def resize_nearest(args, x, scales=None):
    for axis, scale in enumerate(scales_of(args, scales), 2):
        size = x.shape[axis]
        places = np.arange(int(np.float32(size) * scale), dtype=np.float32)
        x = x.take(np.minimum((places / scale).astype(int), size - 1), axis)
    return x


def upsample_bilinear(args, x, scales=None):
    for axis, scale in enumerate(scales_of(args, scales), 2):
        size = x.shape[axis]
        count = int(np.float32(size) * scale)
        places = np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0)
        low = places.astype(int)
        share = (places - low).reshape(-1, *[1] * (x.ndim - axis - 1))
        high = np.minimum(low + 1, size - 1)
        x = x.take(low, axis) * (1 - share) + x.take(high, axis) * share
    return x.astype(np.float32)


def pad_image(args, x):
    top, left, bottom, right = padding(args, 2)
    mode = args.get("mode", "constant")
    more = {"constant_values": args.get("value", 0.0)} if mode == "constant" else {}
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), mode, **more)


def roi_align(args, x, regions):
    size, ratio = (args["pooled_h"], args["pooled_w"]), args.get("sampling_ratio", -1)
    y = np.zeros((len(regions), x.shape[1], *size))
    for number, region in enumerate(regions):
        image = x[int(region[0]) if len(region) == 5 else 0]
        corners = region[-4:].astype(np.float64) * args.get("spatial_scale", 1.0)
        corners -= 0.5 if args.get("aligned") else 0
        start = corners[1], corners[0]
        lengths = [corners[3] - corners[1], corners[2] - corners[0]]
        if not args.get("aligned"):
            lengths = [max(length, 1.0) for length in lengths]
        steps = [length / count for length, count in zip(lengths, size, strict=True)]
        counts = [ratio if ratio > 0 else ceil(step) for step in steps]
        for row, column in np.ndindex(*size):
            points = [
                tuple(
                    start[i] + (place + (sample[i] + 0.5) / counts[i]) * steps[i]
                    for i, place in enumerate((row, column))
                )
                for sample in np.ndindex(*counts)
            ]
            total = sum((_sampled(image, *point) for point in points), np.zeros(len(image)))
            y[number, :, row, column] = total / max(len(points), 1)
    return y.astype(np.float32)


def _sampled(image, row, column):
    """Return the channels of `image` between pixels; 0 more than one pixel outside."""
    limits = image.shape[1:]
    if not (-1 <= row <= limits[0] and -1 <= column <= limits[1]):
        return np.zeros(len(image))
    pairs = []
    for place, limit in zip((row, column), limits, strict=True):
        low = min(int(max(place, 0)), limit - 1)
        high = min(low + 1, limit - 1)
        share = 0.0 if low == limit - 1 else max(place, 0) - low
        pairs.append(((low, 1 - share), (high, share)))
    return sum(image[:, r, c] * (a * b) for r, a in pairs[0] for c, b in pairs[1])


# --- fills ---


def constant_fill(args, x=None):
    if x is None:
        shape = args["shape"]
    else:
        shape = [*(x if args.get("input_as_shape") else x.shape), *args.get("extra_shape", [])]
    value = args.get("value", 0.0)
    return np.full(shape, value, TYPES[args.get("dtype", 10 if isinstance(value, int) else 1)])


def given(dtype):
    return lambda args: np.array(args["values"], dtype).reshape(args["shape"])


def plain(function):
    return lambda args, *inputs: function(*inputs)


def same(args, x):
    return x


OPERATORS = {
    **{name: in_nchw(conv) for name in ("Conv", "Conv1D", "Conv2D", "Conv3D")},
    **{f"ConvTranspose{ending}": in_nchw(conv_transpose) for ending in ("", "1D", "2D", "3D")},
    **{f"MaxPool{ending}": pool(np.max, -np.inf) for ending in ("", "1D", "2D", "3D")},
    **{f"AveragePool{ending}": pool(np.mean, 0.0) for ending in ("", "1D", "2D", "3D")},
    "FC": fully_connected(transposed=False),
    "FCTransposed": fully_connected(transposed=True),
    "MatMul": mat_mul,
    "BatchMatMul": batch_mat_mul,
    "DotProduct": lambda args, a, b: (a * b).reshape(len(a), -1).sum(1),
    "Relu": lambda args, x: np.maximum(x, 0),
    "Sigmoid": plain(sigmoid),
    "Softplus": lambda args, x: np.logaddexp(x, 0),
    "Softsign": lambda args, x: x / (1 + np.abs(x)),
    "Erf": plain(np.vectorize(erf, otypes=[np.float32])),
    "Negative": plain(np.negative),
    "Not": plain(np.logical_not),
    **{
        name: plain(getattr(np, name.lower().replace("a", "arc", 1)))
        for name in ("Asin", "Acos", "Atan")
    },
    **{
        name: plain(getattr(np, name.lower()))
        for name in ("Tanh", "Exp", "Log", "Sqrt", "Abs", "Floor", "Ceil", "Sign", "Reciprocal")
    },
    **{name: plain(getattr(np, name.lower())) for name in ("Sin", "Cos", "Tan", "Sinh", "Cosh")},
    "Sqr": lambda args, x: x * x,
    "Cube": lambda args, x: x * x * x,
    "Rsqrt": lambda args, x: 1 / np.sqrt(x),
    "Swish": lambda args, x: x * sigmoid(x),
    "LeakyRelu": lambda args, x: np.where(x > 0, x, x * args.get("alpha", 0.01)),
    "Elu": lambda args, x: np.where(x > 0, x, args.get("alpha", 1.0) * np.expm1(x)),
    "Selu": selu,
    "HardSigmoid": lambda args, x: np.clip(
        args.get("alpha", 0.2) * x + args.get("beta", 0.5), 0, 1
    ),
    "Gelu": gelu,
    "Clip": lambda args, x: np.clip(x, args.get("min", -np.inf), args.get("max", np.inf)),
    "Cast": cast,
    "PRelu": prelu,
    "Add": binary(np.add),
    "Sub": binary(np.subtract),
    "Mul": binary(np.multiply),
    "Div": binary(divide),
    "And": binary(np.logical_and),
    "Or": binary(np.logical_or),
    "Xor": binary(np.logical_xor),
    "LT": binary(np.less),
    "LE": binary(np.less_equal),
    "GT": binary(np.greater),
    "GE": binary(np.greater_equal),
    "EQ": binary(np.equal),
    "NE": binary(np.not_equal),
    "Sum": many(np.add),
    "Max": many(np.maximum),
    "Min": many(np.minimum),
    "Mean": lambda args, *parts: sum(parts) / np.float32(len(parts)),
    "Pow": lambda args, x, y=None: x ** (np.float32(args["exponent"]) if y is None else y),
    "Where": where,
    "Dropout": same,
    **dict.fromkeys(("Copy", "Alias", "StopGradient", "EnsureCPUOutput"), same),
    **dict.fromkeys(("CopyFromCPUInput", "CopyCPUToGPU", "CopyGPUToCPU"), same),
    "Softmax": softmax,
    "SpatialBN": in_nchw(spatial_bn),
    "InstanceNorm": in_nchw(instance_norm),
    "GroupNorm": in_nchw(group_norm),
    "LayerNorm": layer_norm,
    "LRN": in_nchw(lrn),
    "Normalize": normalize,
    "ReduceMean": reduce(np.mean),
    "ReduceSum": reduce(np.sum),
    "ReduceMax": reduce(np.max),
    "ReduceMin": reduce(np.min),
    "ReduceL1": reduce(l1),
    "ReduceL2": reduce(l2),
    **{
        f"Reduce{name}{op}": side(function, name == "Front")
        for name in ("Front", "Back")
        for op, function in (("Sum", np.sum), ("Mean", np.mean), ("Max", np.max))
    },
    "ArgMax": arg(np.argmax),
    "ArgMin": arg(np.argmin),
    "LengthsSum": lengths_of(mean=False),
    "LengthsMean": lengths_of(mean=True),
    "SparseLengthsSum": sparse_lengths(mean=False),
    "SparseLengthsMean": sparse_lengths(mean=True),
    "SparseLengthsWeightedSum": weighted,
    "Reshape": reshape,
    "Flatten": lambda args, x: x.reshape(prod(x.shape[: args.get("axis", 1)]), -1),
    "FlattenToVec": lambda args, x: x.reshape(-1),
    "Squeeze": lambda args, x: x.squeeze(tuple(args["dims"])),
    "ExpandDims": lambda args, x: np.expand_dims(x, tuple(args["dims"])),
    "Transpose": lambda args, x: x.transpose(args.get("axes")),
    "NCHW2NHWC": lambda args, x: np.moveaxis(x, 1, -1),
    "NHWC2NCHW": lambda args, x: np.moveaxis(x, -1, 1),
    "MergeDim": lambda args, x: x.reshape(-1, *x.shape[2:]),
    "Shape": lambda args, x: np.array(x.shape)[args.get("axes", slice(None))],
    "Size": lambda args, x: np.array(x.size),
    **dict.fromkeys(("Concat", "DepthConcat"), concat),
    **dict.fromkeys(("Split", "DepthSplit"), split),
    "Slice": slice_of,
    "Tile": tile,
    "NumpyTile": lambda args, x, times: np.tile(x, times),
    "ChannelShuffle": in_nchw(channel_shuffle),
    "Glu": glu,
    "Gather": gather,
    "BatchGather": lambda args, x, index: x.take(index, 1),
    "TopK": top_k,
    "ResizeNearest": in_nchw(resize_nearest),
    "UpsampleBilinear": in_nchw(upsample_bilinear),
    "PadImage": in_nchw(pad_image),
    "RoIAlign": in_nchw(roi_align),
    "ConstantFill": constant_fill,
    "GivenTensorFill": given("f4"),
    "GivenTensorDoubleFill": given("f8"),
    "GivenTensorBoolFill": given("?"),
    "GivenTensorInt16Fill": given("i2"),
    "GivenTensorIntFill": given("i4"),
    "GivenTensorInt64Fill": given("i8"),
}
