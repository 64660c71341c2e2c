"""More operators of Caffe2, made at random as in caffe2_cases, and in numpy as in caffe2_reference.

They are those that no run of Caffe2 itself is kept of.
"""

import numpy as np
from caffe2_cases import alike, dims, index_type, lengths, maybe, pool, reals, truths, unary, wholes
from caffe2_reference import in_nchw, segments, shapes_of
from caffe2_reference import pool as pool_of


def on_unit(arrays, *shape):
    return arrays.random(shape).astype(np.float32)


def with_nan(arrays, *shape):
    x = reals(arrays, *shape)
    x.ravel()[::3] = np.nan
    return x


def conditional(dice, arrays):
    shape = dims(dice)
    return {}, [truths(arrays, shape[0]), reals(arrays, *shape), reals(arrays, *shape)], 1


def weighted_sum(dice, arrays):
    shape, inputs = dims(dice), []
    for _ in range(dice.randint(1, 3)):
        inputs += [reals(arrays, *shape), reals(arrays, 1)]
    return {}, inputs, 1


def affine_channel(dice, arrays):
    order, channels = dice.choice(("NCHW", "NHWC")), dice.randint(1, 4)
    sizes = dims(dice, 2, 2)
    shape = (channels, *sizes) if order == "NCHW" else (*sizes, channels)
    args = {"order": order} if order == "NHWC" or maybe(dice) else {}
    return args, [reals(arrays, 2, *shape), *(reals(arrays, channels) for _ in range(2))], 1


def linear(dice, arrays):
    shape = dims(dice, 2)
    axis = dice.randint(1, len(shape) - 1)
    args = {"axis": axis} if axis > 1 or maybe(dice) else {}
    size = int(np.prod(shape[axis:]))
    return args, [reals(arrays, *shape), reals(arrays, size), reals(arrays, size)], 1


def row_mul(dice, arrays):
    shape = dims(dice, 2)
    return {}, [reals(arrays, *shape), reals(arrays, shape[0])], 1


def matrices(dice, arrays):
    return {}, [reals(arrays, *dims(dice, 3, 3))], 1


def expand(dice, arrays):
    shape = dims(dice)
    x = reals(arrays, *(size if maybe(dice) else 1 for size in shape))
    wanted = [size if x.shape[i] == 1 or maybe(dice) else 1 for i, size in enumerate(shape)]
    wanted = [dice.randint(1, 3)] * dice.randint(0, 1) + wanted
    if maybe(dice):
        return {"shape": wanted}, [x], 1
    return {}, [x, np.array(wanted, index_type(dice))], 1


def resize_like(dice, arrays):
    shape = dims(dice)
    return {}, [reals(arrays, int(np.prod(shape))), reals(arrays, *shape)], 1


def unique(dice, arrays):
    count = dice.randint(1, 9)
    return {}, [wholes(arrays, -3, 4, (count,), index_type(dice))], dice.randint(1, 2)


def upsample_nearest(dice, arrays):
    args = {"scale": dice.randint(1, 4)} if maybe(dice) else {}
    return args, [reals(arrays, *dims(dice, 4, 4))], 1


def lengths_weighted(dice, arrays):
    sizes = lengths(dice, arrays)
    count = int(sizes.sum())
    return {}, [reals(arrays, count, dice.randint(1, 4)), reals(arrays, count), sizes], 1


def roi_pool(dice, arrays):
    height, width = dice.randint(3, 8), dice.randint(3, 8)
    regions = []
    for _ in range(dice.randint(1, 4)):
        left, top = dice.randint(0, width - 1), dice.randint(0, height - 1)
        right, bottom = dice.randint(left, width - 1), dice.randint(top, height - 1)
        regions.append([dice.randint(0, 1), left, top, right, bottom])
    scale = dice.choice((1.0, 0.5))
    args = {"pooled_h": dice.randint(1, 3), "pooled_w": dice.randint(1, 3), "is_test": 1}
    regions = np.float32(regions) * np.float32([1, *[1 / scale] * 4])
    return args | {"spatial_scale": scale}, [reals(arrays, 2, 2, height, width), regions], 1


def box_transform(dice, arrays):
    images, classes = dice.randint(1, 3), dice.randint(1, 3)
    numbers = np.sort(arrays.integers(0, images, dice.randint(1, 6)))
    boxes = np.sort(arrays.random((len(numbers), 2, 2)) * 40, axis=1).reshape(-1, 4)
    if images > 1 or maybe(dice):
        boxes = np.concatenate([numbers[:, None], boxes], axis=1)
    args = {"legacy_plus_one": dice.randint(0, 1)}
    if maybe(dice):
        args = {"correct_transform_coords": 1}
    if maybe(dice):
        args["weights"] = [10.0, 5.0, 2.5, 1.25]
    if maybe(dice):
        args["apply_scale"] = dice.randint(0, 1)
    deltas = arrays.normal(size=(len(numbers), 4 * classes)) * 3
    info = [[dice.randint(10, 50), dice.randint(10, 50), dice.choice((0.5, 1, 1.7))]] * images
    return args, [boxes.astype(np.float32), deltas.astype(np.float32), np.float32(info)], 2


def box_limit(dice, arrays):
    count, classes = dice.randint(1, 12), dice.randint(2, 4)
    corners = np.sort(arrays.random((count, classes, 2, 2)) * 20, axis=2)
    scores = np.round(arrays.random((count, classes)), 1).astype(np.float32)  # some are equal
    args = {"legacy_plus_one": dice.randint(0, 1)} if maybe(dice) else {}
    if maybe(dice):
        args |= {"nms": dice.choice((0.0, 0.5, 1.0)), "score_thresh": 0.35}
    if maybe(dice):
        args["detections_per_im"] = dice.randint(-1, 9)
    if maybe(dice):
        args["output_classes_include_bg_cls"] = dice.randint(0, 1)
    inputs = [scores, corners.reshape(count, -1).astype(np.float32)]
    if maybe(dice):
        inputs.append(np.float32([count]))
    return args, inputs, 6


def range_of(dice, arrays):
    dtype = dice.choice((np.int32, np.int64, np.float32))
    start, step = dice.randint(-5, 5), dice.choice((-2, -1, 1, 2, 3))
    bounds = [[dice.randint(0, 9)], [start, start + 4], [start, start + 4 * step, step]]
    return {}, [np.array([one], dtype) for one in dice.choice(bounds)], 1


def modulo(dice, arrays):
    args = {"divisor": dice.choice((-3, 2, 5))}
    if maybe(dice):
        args["sign_follow_divisor"] = dice.randint(0, 1)
    return args, [wholes(arrays, -9, 9, dims(dice), index_type(dice))], 1


def prepend(dice, arrays):
    size = dice.randint(1, 3)
    return {"dim_size": size}, [reals(arrays, size * dice.randint(1, 3), *dims(dice, 0, 2))], 1


def moments(dice, arrays):
    shape = dims(dice)
    args = {"keepdims": dice.randint(0, 1)} if maybe(dice) else {}
    if maybe(dice):
        axes = dice.sample(range(len(shape)), dice.randint(1, len(shape)))
        args["axes"] = [axis - len(shape) if maybe(dice) else axis for axis in axes]
    return args, [reals(arrays, *shape)], dice.randint(1, 2)


def masked(dice, arrays):
    shape = dims(dice)
    return {}, [reals(arrays, *shape), truths(arrays, shape[0])], dice.randint(1, 2)


def of_lengths(dice, arrays):
    return {}, [lengths(dice, arrays)], 1


def lp_pool(dice, arrays):
    args, inputs, count = pool(2)(dice, arrays)
    return args | dice.choice(({}, {"p": 1.0}, {"p": 3.0})), inputs, count


def near_zero(arrays, *shape):
    x = arrays.random(shape) * 10.0 ** arrays.integers(-9, 3, shape)
    return (x * arrays.choice([-0.09, 1.0], shape)).clip(-0.9).astype(np.float32)


CASES = {
    "FloatToHalf": unary(),
    "HalfToFloat": lambda dice, arrays: ({}, [reals(arrays, *dims(dice)).astype(np.float16)], 1),
    "Float16ConstantFill": lambda dice, arrays: (
        {"shape": list(dims(dice)), "value": dice.choice((0.5, 70000.0))},
        [],
        1,
    ),
    "ReluN": unary(n=(1.0, 0.5)),
    "Log1p": unary(near_zero),
    "Mod": modulo,
    "Range": range_of,
    "PrependDim": prepend,
    "Moments": moments,
    "BooleanMask": masked,
    "RoIPool": roi_pool,
    "BBoxTransform": box_transform,
    "BoxWithNMSLimit": box_limit,
    **dict.fromkeys(("LengthsToSegmentIds", "LengthsToRanges", "LengthsRangeFill"), of_lengths),
    "ThresholdedRelu": unary(alpha=(0.0, 0.5)),
    "Logit": unary(on_unit, eps=(1e-6, 0.2)),
    "Cbrt": unary(),
    "Mish": unary(),
    "IsNaN": unary(with_nan),
    "LpPool": lp_pool,
    "Scale": unary(scale=(2.0, -0.5)),
    "ReplaceNaN": unary(with_nan, value=(1.5, -2.0)),
    "WeightedSum": weighted_sum,
    "AffineChannel": affine_channel,
    "ElementwiseLinear": linear,
    "RowMul": row_mul,
    "Conditional": conditional,
    **dict.fromkeys(("NanCheck", "EnsureDense"), unary()),
    **dict.fromkeys(("L1Distance", "SquaredL2Distance", "CosineSimilarity"), alike(2)),
    **dict.fromkeys(("RowwiseMax", "ColwiseMax"), matrices),
    **dict.fromkeys(("SumElements", "SumSqrElements"), unary(average=(0, 1))),
    "LengthsWeightedSum": lengths_weighted,
    "Expand": expand,
    "ResizeLike": resize_like,
    "Unique": unique,
    "UpsampleNearest": upsample_nearest,
}


def logit(args, x):
    eps = np.float32(args.get("eps", 1e-6))
    x = np.clip(x, eps, 1 - eps)
    return np.log(x / (1 - x))


def weighted_sum_of(args, *inputs):
    return sum(x * weight for x, weight in zip(inputs[::2], inputs[1::2], strict=True))


def affine(args, x, scale, bias):
    if args.get("order") != "NHWC":
        scale, bias = (one.reshape(-1, 1, 1) for one in (scale, bias))
    return x * scale + bias


def linear_of(args, x, scale, bias):
    axis = args.get("axis", 1)
    return (x.reshape(int(np.prod(x.shape[:axis])), -1) * scale + bias).reshape(x.shape)


def rows(x):
    return x.reshape(len(x), -1)


def cosine(args, x, y):
    x, y = rows(x), rows(y)
    squares = np.maximum((x * x).sum(1), 1e-12) * np.maximum((y * y).sum(1), 1e-12)
    return ((x * y).sum(1) / np.sqrt(squares)).astype(np.float32)


def total(args, x):
    return x.mean() if args.get("average") else x.sum()


def expand_to(args, x, shape=None):
    return x * np.ones(args["shape"] if shape is None else shape, np.float32)


def unique_of(args, x):
    found, places = np.unique(x, return_inverse=True)
    return found, places.astype(np.int32)


def nearest(args, x):
    scale = args.get("scale", 2)
    return x.repeat(scale, 2).repeat(scale, 3)


def half_fill(args):
    with np.errstate(over="ignore"):
        return np.full(args["shape"], args["value"]).astype(np.float16)


def round_away(x):
    return int(np.floor(x + 0.5))


def box_transform_of(args, boxes, deltas, info):
    pixel = args.get("legacy_plus_one", 1)
    weights = args.get("weights", [1.0] * 4)
    made, counts = np.zeros_like(deltas), np.zeros(len(info), np.float32)
    for row, box in enumerate(boxes):
        image = int(box[0]) if len(box) == 5 else 0
        counts[image] += 1
        height, width, scale = info[image]
        left, top, right, bottom = box[-4:] / scale
        wide, tall = right - left + pixel, bottom - top + pixel
        x, y = left + wide / 2, top + tall / 2
        most_x, most_y = int(width / scale + 0.5) - pixel, int(height / scale + 0.5) - pixel
        for column in range(0, deltas.shape[1], 4):
            right_by, down_by, wider, taller = deltas[row, column : column + 4] / weights
            new_x, new_y = x + right_by * wide, y + down_by * tall
            new_wide = wide * min(np.exp(wider), 62.5)
            new_tall = tall * min(np.exp(taller), 62.5)
            corners = [new_x - new_wide / 2, new_y - new_tall / 2]
            corners += [new_x + new_wide / 2 - pixel, new_y + new_tall / 2 - pixel]
            limited = np.clip(corners, 0, [most_x, most_y] * 2)
            made[row, column : column + 4] = limited * (scale if args.get("apply_scale", 1) else 1)
    return made, counts


def overlap_of(a, b, pixel):
    both = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + pixel
    shared = both.prod() if both.min() > 0 else 0.0
    areas = [(one[2:] - one[:2] + pixel).prod() for one in (a, b)]
    return shared / (sum(areas) - shared)


def box_limit_of(args, scores, boxes, splits=None):
    pixel, most = args.get("legacy_plus_one", 1), args.get("detections_per_im", 100)
    found = []
    for kind in range(1, scores.shape[1]):
        places, kept = boxes[:, 4 * kind : 4 * kind + 4], []
        for row in np.argsort(-scores[:, kind], kind="stable"):
            apart = (overlap_of(places[row], places[one], pixel) for one in kept)
            if scores[row, kind] > np.float32(args.get("score_thresh", 0.05)) and all(
                one <= args.get("nms", 0.3) for one in apart
            ):
                kept.append(row)
        found += [(kind, row) for row in (kept[:most] if most > 0 else kept)]
    if most > 0:
        best = sorted(range(len(found)), key=lambda n: -scores[found[n][1], found[n][0]])
        found = [found[n] for n in sorted(best[:most])]
    kinds, rows = np.array(found, int).reshape(-1, 2).T
    sizes = [(kinds == kind).sum() for kind in range(scores.shape[1])]
    shown = kinds - 1 + args.get("output_classes_include_bg_cls", 1)
    chosen = boxes.reshape(len(boxes), -1, 4)[rows, kinds]
    return scores[rows, kinds], chosen, shown, np.array([len(rows)]), rows, np.array([sizes])


def roi_pool_of(args, x, regions):
    height, width, scale = args["pooled_h"], args["pooled_w"], args["spatial_scale"]
    y = np.zeros((len(regions), x.shape[1], height, width), np.float32)
    for number, (image, *corners) in enumerate(regions):
        left, top, right, bottom = (round_away(corner * scale) for corner in corners)
        tall, wide = (max(size, 1) / count for size, count in
                      ((bottom - top + 1, height), (right - left + 1, width)))  # fmt: skip
        for row, column in np.ndindex(height, width):
            ups = [int(np.floor(row * tall)) + top, int(np.ceil((row + 1) * tall)) + top]
            asides = [int(np.floor(column * wide)), int(np.ceil((column + 1) * wide))]
            a, b = np.clip(ups, 0, x.shape[2])
            c, d = np.clip(np.add(asides, left), 0, x.shape[3])
            if a < b and c < d:
                y[number, :, row, column] = x[int(image), :, a:b, c:d].max((1, 2))
    return y


def modulo_of(args, x):
    function = np.mod if args.get("sign_follow_divisor") else np.fmod
    return function(x, np.array(args["divisor"], x.dtype))


def moments_of(args, x):
    axes = tuple(args["axes"]) if "axes" in args else None
    keep = bool(args.get("keepdims", 1))
    return x.mean(axes, keepdims=keep), x.var(axes, keepdims=keep)


def ranges_of(args, lengths):
    return np.stack([np.cumsum(lengths) - lengths, lengths], 1)


def lp_pool_of(args, x):
    p, averages = args.get("p", 2.0), args | {"count_include_pad": 1, "order": "NCHW"}
    mean = pool_of(np.mean, 0.0)(averages, np.abs(x) ** p)
    size = x.shape[2:] if args.get("global_pooling") else shapes_of(args)[0]
    return (mean * np.prod(size)) ** (1 / p)


REFERENCES = {
    "FloatToHalf": lambda args, x: x.astype(np.float16),
    "HalfToFloat": lambda args, x: x.astype(np.float32),
    "Float16ConstantFill": half_fill,
    "ReluN": lambda args, x: x.clip(0, args.get("n", 6.0)),
    "Log1p": lambda args, x: np.log1p(x),
    "Mod": modulo_of,
    "Range": lambda args, *bounds: np.arange(*(one.item() for one in bounds)).astype(
        bounds[0].dtype
    ),
    "PrependDim": lambda args, x: x.reshape(args["dim_size"], -1, *x.shape[1:]),
    "Moments": moments_of,
    "BooleanMask": lambda args, x, mask: (x[mask], np.flatnonzero(mask)),
    "RoIPool": roi_pool_of,
    "BBoxTransform": box_transform_of,
    "BoxWithNMSLimit": box_limit_of,
    "LengthsToSegmentIds": lambda args, n: np.repeat(np.arange(len(n)), n),
    "LengthsToRanges": ranges_of,
    "LengthsRangeFill": lambda args, n: np.concatenate([[], *map(np.arange, n)]),
    "ThresholdedRelu": lambda args, x: np.where(x > args.get("alpha", 1.0), x, np.float32(0)),
    "Logit": logit,
    "Cbrt": lambda args, x: np.cbrt(x),
    "Mish": lambda args, x: x * np.tanh(np.logaddexp(x, 0)),
    "IsNaN": lambda args, x: np.isnan(x).astype(np.uint8),
    "LpPool": in_nchw(lp_pool_of),
    "Scale": lambda args, x: x * np.float32(args.get("scale", 1.0)),
    "ReplaceNaN": lambda args, x: np.where(np.isnan(x), np.float32(args.get("value", 0.0)), x),
    "WeightedSum": weighted_sum_of,
    "AffineChannel": affine,
    "ElementwiseLinear": linear_of,
    "RowMul": lambda args, x, scale: (rows(x) * scale[:, None]).reshape(x.shape),
    "Conditional": lambda args, c, x, y: np.where(c.reshape(-1, *[1] * (x.ndim - 1)), x, y),
    **dict.fromkeys(("NanCheck", "EnsureDense"), lambda args, x: x),
    "L1Distance": lambda args, x, y: np.abs(rows(x - y)).sum(1),
    "SquaredL2Distance": lambda args, x, y: (rows(x - y) ** 2).sum(1) / 2,
    "CosineSimilarity": cosine,
    "RowwiseMax": lambda args, x: x.max(2),
    "ColwiseMax": lambda args, x: x.max(1),
    "SumElements": total,
    "SumSqrElements": lambda args, x: total(args, x * x),
    "LengthsWeightedSum": lambda args, x, w, n: segments(x * w[:, None], n, mean=False),
    "Expand": expand_to,
    "ResizeLike": lambda args, x, y: x.reshape(y.shape),
    "Unique": unique_of,
    "UpsampleNearest": nearest,
}
