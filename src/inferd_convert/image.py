"""Resizing of images and pooling of their regions, as all formats have them."""

from collections.abc import Sequence

import numpy as np

from inferd_convert import filled
from inferd_convert.call import OperatorCall
from inferd_convert.graph import Graph, Value


def scaled_nearest(graph: Graph, x: Value, scales: Value) -> Value:
    """Return `x` with each dim scaled: each pixel is that at its place divided by the scale."""
    return graph.add(
        "Resize",
        *(x, None, scales),
        rank=4,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def resized(
    graph: Graph, x: Value, scales: Value | None, where: str, sizes: Value | None = None
) -> Value:
    """Return images whose pixels are interpolated, at places found as `where` says for ONNX."""
    operands = x, None, scales, sizes
    return graph.add(
        "Resize", *operands, rank=4, mode="linear", coordinate_transformation_mode=where
    )


def upsampled(graph: Graph, x: Value, scale: int) -> Value:
    """Return images whose pixels are repeated `scale` times in each direction."""
    return scaled_nearest(graph, x, graph.constant(np.array([1, 1, scale, scale], np.float32)))


def pooled_regions(call: OperatorCall, sizes: Sequence[int]) -> Value:
    """Return the maxima of parts of regions, which are an image's index and four coordinates."""
    scale = call.number("spatial_scale", 1.0)
    operands = call.input(0), call.input(1)
    return call.graph.add("MaxRoiPool", *operands, rank=4, pooled_shape=sizes, spatial_scale=scale)


def aligned_regions(
    call: OperatorCall, operands: Sequence[Value], sizes: Sequence[int], ratio: int
) -> Value:
    """Return samples of parts of regions; `operands` are images, corners, and images' indices."""
    images, corners, numbers = operands
    return call.graph.add(
        "RoiAlign",
        *(filled.with_places(call.graph, images), corners, numbers),
        rank=4,
        # "aligned" takes half a pixel off, ONNX's half_pixel; without it nothing is.
        coordinate_transformation_mode="half_pixel"
        if call.flag("aligned")
        else "output_half_pixel",
        output_height=sizes[0],
        output_width=sizes[1],
        # -1 means "as many as fit" in the frameworks, 0 in ONNX.
        sampling_ratio=max(ratio, 0),
        spatial_scale=call.number("spatial_scale", 1.0),
    )
