"""Pictures of what is computed, drawn by code: boxes and arrows, no measurements.

Each function draws on the axes it is given and fits a page of a phone's width.
"""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.text import Text

from whyattention.figures import COLOURS, GREY

Point = tuple[float, float]

INPUT, STATE, OUTPUT, MEETING = (
    "white",
    "#DDEBF5",
    "#FBE3D2",
    "#FFF2CC",
)  # readable in grey: the text says which is which
PALE = "lightgrey"


def box(ax: Axes, at: Point, text: str, colour: str = INPUT, shape: str = "round", size: float = 12) -> Text:
    """A box around `text`, with its middle at `at`."""
    style = {"boxstyle": f"{shape},pad=0.35", "facecolor": colour, "edgecolor": "black"}
    return ax.text(*at, text, ha="center", va="center", fontsize=size, bbox=style, zorder=3)


def arrow(ax: Axes, start: Point | Text, end: Point | Text, **style) -> None:
    """An arrow; from the edge of a box to the edge of a box where boxes are given."""
    props = {"arrowstyle": "-|>", "linewidth": 1.4, "color": "black", "shrinkA": 0, "shrinkB": 0} | style
    (start_at, start_box), (end_at, end_box) = _end(start), _end(end)
    ax.annotate("", end_at, start_at, arrowprops={**props, "patchA": start_box, "patchB": end_box}, zorder=2)


def _end(place: Point | Text):
    return (place.get_position(), place.get_bbox_patch()) if isinstance(place, Text) else (place, None)


def recurrence(ax: Axes, steps: int = 4) -> None:
    """A recurrence as a loop, and the same unrolled: `steps` copies of one cell, each of which waits for the last."""
    loop = box(ax, (0, 1), "cell", STATE)
    arrow(ax, box(ax, (0, 0), "$x_t$"), loop)
    arrow(ax, (0.34, 1.1), (-0.34, 1.1), connectionstyle="arc3,rad=1.9")
    ax.text(0, 1.85, "$h_t$", ha="center", fontsize=12)
    ax.text(1.0, 1, "=", ha="center", va="center", fontsize=18)
    before = box(ax, (1.8, 1), "$h_0$")
    for step in range(1, steps + 1):
        cell = box(ax, (1.8 + 1.25 * step, 1), "cell", STATE)
        arrow(ax, before, cell)
        arrow(ax, box(ax, (1.8 + 1.25 * step, 0), f"$x_{step}$"), cell)
        if step > 1:
            ax.text(1.8 + 1.25 * (step - 0.5), 1.2, f"$h_{step - 1}$", ha="center", fontsize=11)
        before = cell
    arrow(ax, before, (2.7 + 1.25 * steps, 1))
    ax.text(2.75 + 1.25 * steps, 1, f"$h_{steps}$", va="center", fontsize=12)
    ax.set(xlim=(-0.7, 3.3 + 1.25 * steps), ylim=(-0.5, 2.4))
    ax.axis("off")


def translator(ax: Axes, source: Sequence[str], target: Sequence[str], weights: Sequence[float] | None = None) -> None:
    """An encoder below and a decoder above: with one vector between them, or with attention for the second word.

    `weights` are the second target word's on the words of `source`, one each, and the encoder then reads both ways;
    without them the last state of the encoder is all that the decoder gets. Raises ValueError if their number is not
    that of the source words.
    """
    if weights is not None and len(weights) != len(source):
        raise ValueError(f"expected one weight for each of {len(source)} source words, got {len(weights)}")
    both_ways = {} if weights is None else {"arrowstyle": "<|-|>"}
    states = _row(ax, [f"$h_{j}$" for j in range(1, len(source) + 1)], 1, STATE, **both_ways)
    for state, word in zip(states, source, strict=True):
        arrow(ax, box(ax, (state.get_position()[0], 0), word, size=10.5), state)
    said = _row(ax, [f"$s_{i}$" for i in range(1, len(target) + 1)], 3.4, OUTPUT, width=len(source))
    for state, word in zip(said, target, strict=True):
        arrow(ax, state, box(ax, (state.get_position()[0], 4.4), word, size=10.5))
    if weights is None:
        vector = box(ax, ((len(source) - 1) / 2, 2.2), "$c = h_S$: one vector", MEETING)
        arrow(ax, states[-1], vector)
        for state in said:
            arrow(ax, vector, state, color=GREY)
    else:
        context = box(ax, (said[1].get_position()[0], 2.3), "$c_2$", MEETING)
        for state, weight in zip(states, weights, strict=True):
            arrow(ax, state, context, color=COLOURS[1], linewidth=0.6 + 6 * weight)
        arrow(ax, context, said[1])
    ax.set(xlim=(-0.6, len(source) - 0.4), ylim=(-0.4, 4.8))
    ax.axis("off")


def _row(ax: Axes, names: Sequence[str], height: float, colour: str, width: int | None = None, **style) -> list[Text]:
    """Boxes from left to right, spread over `width` places, each with an arrow to the next."""
    stretch = ((width or len(names)) - 1) / (len(names) - 1)
    boxes = [box(ax, (stretch * place, height), name, colour) for place, name in enumerate(names)]
    for left, right in pairwise(boxes):
        arrow(ax, left, right, **style)
    return boxes


def transformer_layer(ax: Axes, pre_norm: bool) -> None:
    """One layer of a Transformer's encoder from below to above: attention, then the feed-forward network.

    The stream of the residuals runs straight up. With `pre_norm` each sublayer reads a normalised copy of it, and
    nothing else touches it; otherwise, as in Vaswani et al. 2017 (section 3.1), the norm stands in the stream itself.
    """
    stream = [box(ax, (0, 0), "$x$")]
    for floor, name in ((1, "attention"), (5.4, "feed-forward")):
        start, plus, after = floor, floor + 2.3, floor + 3.5
        sublayer = box(ax, (1.6, (start + plus) / 2), name, STATE, size=10.5)
        stream.append(box(ax, (0, plus), "$+$", MEETING, "circle"))
        if pre_norm:
            norm = box(ax, (1.6, start), "norm", OUTPUT, size=10.5)
            arrow(ax, (0, start), norm)
            arrow(ax, norm, sublayer)
        else:
            ax.plot((0, 1.6), (start, start), color="black", linewidth=1.4)
            arrow(ax, (1.6, start), sublayer)
            stream.append(box(ax, (0, after), "norm", OUTPUT, size=10.5))
        ax.plot((1.6, 1.6), ((start + plus) / 2 + 0.35, plus), color="black", linewidth=1.4, zorder=1)
        arrow(ax, (1.6, plus), stream[-1 if pre_norm else -2])
    for below, above in pairwise(stream):
        arrow(ax, below, above, linewidth=3, color=COLOURS[0])
    arrow(ax, stream[-1], (0, 10.1), linewidth=3, color=COLOURS[0])
    ax.set(xlim=(-0.7, 2.7), ylim=(-0.6, 10.3))
    ax.axis("off")


def rounds(ax: Axes, steps: int = 8) -> None:
    """The steps of a linear recurrence joined in rounds: in round k, each with what ends 2^(k-1) steps before it.

    A dot is the joining of the steps that its name gives, and in colour are those that the last one is made of.
    """
    distances = [2**k for k in range((steps - 1).bit_length())]
    needed = [{steps - 1}]  # from the last row up
    for distance in reversed(distances):
        needed.insert(0, {place - back for place in needed[0] for back in (0, distance) if place >= back})
    for row, in_colour in enumerate(needed):
        for place in range(steps):
            first = max(place - 2**row + 1, 0)
            name = f"{place + 1}" if first == place else f"{first + 1}-{place + 1}"
            ax.plot(place, -row, "o", color=COLOURS[0] if place in in_colour else PALE, markersize=9)
            ax.text(place, -row - 0.17, name, ha="center", va="top", fontsize=9)
    for row, distance in enumerate(distances):
        for start in range(steps):
            for end in {start, start + distance} & set(range(steps)):
                used = start in needed[row] and end in needed[row + 1]
                style = (
                    {"color": COLOURS[0], "linewidth": 1.8, "zorder": 2} if used else {"color": PALE, "linewidth": 1}
                )
                ax.plot((start, end), (-row - 0.42, -row - 0.88), **style)
    ax.set(xlim=(-0.6, steps - 0.4), ylim=(-len(distances) - 0.6, 0.4), xticks=[])
    ax.set_yticks(range(0, -len(needed), -1), ["steps", *(f"round {row}" for row in range(1, len(needed)))])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(visible=False)
