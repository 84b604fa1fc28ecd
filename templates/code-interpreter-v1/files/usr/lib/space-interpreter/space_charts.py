"""What a matplotlib figure shows, as numbers and words: the form that E2B's chart classes read."""
import re

from matplotlib import dates
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text


def chart_of(figure):
    charts = [axes_chart(axes) for axes in figure.axes]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if figure._suptitle else None
    return {"type": "superchart", "title": title or None, "elements": charts}


def axes_chart(axes):
    kind = kind_of(axes)
    chart = {"type": kind, "title": axes.get_title() or None, "elements": []}
    if kind in ("unknown", "pie"):
        if kind == "pie":
            chart["elements"] = [{"label": w.get_label(), "angle": round(abs(w.theta2 - w.theta1), 6), "radius": w.r} for w in axes.patches]
        return chart
    for name in ("x", "y"):
        label = getattr(axes, f"get_{name}label")() or None
        chart[f"{name}_label"], chart[f"{name}_unit"] = label, unit_of(label)
    if kind in ("line", "scatter"):
        for name in ("x", "y"):
            chart.update(axis_of(axes, name))
        chart["elements"] = lines_of(axes) if kind == "line" else scatters_of(axes)
    elif kind == "bar":
        add_bars(axes, chart)
    else:
        add_boxes(axes, chart)
    return chart


def kind_of(axes):
    shown = [one for one in axes._children if not isinstance(one, Text)]
    if all(isinstance(one, Line2D) for one in shown):
        return "line"
    if all(isinstance(one, (PathPatch, Line2D)) for one in shown):
        return "box_and_whisker"
    shown = [one for one in shown if not (isinstance(one, Line2D) and is_rule(one))]
    for kind, types in (("scatter", PathCollection), ("pie", Wedge), ("bar", Rectangle)):
        if all(isinstance(one, types) for one in shown):
            return kind
    return "unknown"


def is_rule(line):
    """A straight line across, as axhline and axvline draw it."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def unit_of(label):
    found = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
    return (found.group(1) or found.group(2)) if found else None


def axis_of(axes, name):
    axis = getattr(axes, f"{name}axis")
    labels = [label.get_text() for label in axis.get_ticklabels()]
    ticks = [float(tick) for tick in axis.get_ticklocs()]
    is_date = isinstance(axis.converter, (dates._SwitchableDateConverter, dates.DateConverter, dates.ConciseDateConverter))
    scale = axis.get_scale()
    if is_date:
        scale = "datetime"
    elif scale == "linear" and ticks and all(tick == at and label not in (str(at), f"{at:.1f}") for at, (tick, label) in enumerate(zip(ticks, labels))):
        scale = "categorical"
    shown = [dates.num2date(tick).isoformat() for tick in ticks] if is_date else ticks
    return {f"{name}_ticks": shown, f"{name}_tick_labels": labels, f"{name}_scale": scale}


def point(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    return value if isinstance(value, str) else float(value)


def lines_of(axes):
    out = []
    for line in axes.get_lines():
        if is_rule(line):
            continue
        label = line.get_label()
        number = re.fullmatch(r"_child(\d+)", label)
        points = [(point(x), point(y)) for x, y in zip(line.get_xdata(), line.get_ydata())]
        out.append({"label": f"Line {number.group(1)}" if number else label, "points": points})
    return out


def scatters_of(axes):
    return [{"label": one.get_label(), "points": [(float(x), float(y)) for x, y in one.get_offsets()]} for one in axes.collections]


def turn(chart):
    """Bars and boxes that lie: the axis of their values comes second, as it does for those that stand."""
    for what in ("label", "unit"):
        chart[f"x_{what}"], chart[f"y_{what}"] = chart[f"y_{what}"], chart[f"x_{what}"]


def add_bars(axes, chart):
    lying = False
    for container in axes.containers:
        group = container.get_label()
        number = re.fullmatch(r"_container(\d+)", group)
        group = f"Group {number.group(1)}" if number else group
        lying = getattr(container, "orientation", "vertical") == "horizontal"
        labels = [label.get_text() for label in (axes.get_yticklabels() if lying else axes.get_xticklabels())]
        for label, bar in zip(labels, container):
            chart["elements"].append({"label": label, "group": group, "value": float(bar.get_width() if lying else bar.get_height())})
    if lying:
        turn(chart)


def extent(values):
    return float(min(values)), float(max(values))


def add_boxes(axes, chart):
    """boxplot(patch_artist=True): a box is a patch; whiskers, caps and the median are lines of two points, outliers of markers."""
    boxes = []
    for patch in axes.patches:
        corners = patch.get_path().vertices
        boxes.append((extent(corners[:, 0]), extent(corners[:, 1])))
    # All boxes that stand are equally wide, if there are several; a single one is taken to stand unless its median is upright.
    widths = [round(x[1] - x[0], 9) for x, _ in boxes]
    heights = [round(y[1] - y[0], 9) for _, y in boxes]
    upright = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] == line.get_xdata()[1]]
    lying = len(set(heights)) == 1 and (len(set(widths)) > 1 or any(
        boxes[0][0][0] <= line.get_xdata()[0] <= boxes[0][0][1] and extent(line.get_ydata()) == boxes[0][1] for line in upright))
    if lying:
        turn(chart)
    labels = [label.get_text() for label in (axes.get_yticklabels() if lying else axes.get_xticklabels())]
    for label, (x, y) in zip(labels, boxes):
        across, along = (y, x) if lying else (x, y)
        chart["elements"].append(box_of(axes, label, across, along, lying))


def box_of(axes, label, across, along, lying):
    box = {"label": label, "min": along[0], "first_quartile": along[0], "median": along[0], "third_quartile": along[1], "max": along[1], "outliers": []}
    near = 1e-9 + 1e-6 * abs(along[1] - along[0])
    for line in axes.lines:
        where, values = line.get_xdata(), line.get_ydata()
        if lying:
            where, values = values, where
        if len(where) == 0 or not all(across[0] - near <= one <= across[1] + near for one in where):
            continue
        low, high = extent(values)
        if line.get_linestyle() in ("None", "none", ""):
            box["outliers"] = [float(one) for one in values]
        elif len(values) != 2:
            continue
        elif high - low <= near and along[0] - near <= low <= along[1] + near and abs(where[0] - where[1]) > near:
            if abs(extent(where)[0] - across[0]) <= near:  # as wide as the box: the median, not a cap
                box["median"] = low
        elif abs(high - along[0]) <= near:
            box["min"] = low
        elif abs(low - along[1]) <= near:
            box["max"] = high
    return box
