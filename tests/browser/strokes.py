"""Digits as people draw them: strokes, lists of points from 0 to 1."""

import math


def arc(middle, radius, start, end, steps=24):
    """Points of an ellipse, angles in degrees."""
    (x, y), (rx, ry) = middle, radius
    angles = [math.radians(start + (end - start) * i / steps) for i in range(steps + 1)]
    return [(x + rx * math.cos(angle), y + ry * math.sin(angle)) for angle in angles]


DIGITS = {
    0: [arc((0.5, 0.5), (0.2, 0.32), -90, 270)],
    2: [[*arc((0.5, 0.35), (0.17, 0.17), -170, 30), (0.33, 0.8), (0.7, 0.8)]],
    3: [arc((0.48, 0.34), (0.16, 0.16), -150, 90) + arc((0.48, 0.66), (0.18, 0.16), -90, 150)],
    4: [[(0.55, 0.18), (0.3, 0.6), (0.72, 0.6)], [(0.58, 0.42), (0.58, 0.85)]],
    5: [[(0.66, 0.2), (0.4, 0.2), (0.38, 0.48), *arc((0.49, 0.62), (0.18, 0.18), -110, 150)]],
    7: [[(0.32, 0.2), (0.68, 0.2), (0.45, 0.82)], [(0.4, 0.5), (0.65, 0.5)]],
}


def draw(page, strokes):
    """Draw on the sheet of the page, with the mouse."""
    sheet = page.locator("canvas.sheet")
    sheet.wait_for()
    box = sheet.bounding_box()
    for stroke in strokes:
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point)
        page.mouse.up()
