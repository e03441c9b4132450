"""The pictures made of boxes and arrows hold what they are said to hold."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Annotation

from whyattention import diagrams

SOURCE, TARGET = ["the", "black", "cat", "END"], ["le", "chat", "noir"]


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def boxes(ax):
    return [text.get_text() for text in ax.texts if text.get_bbox_patch() is not None]


def arrows_into(ax, name):
    (box,) = [text.get_bbox_patch() for text in ax.texts if text.get_text() == name]
    return [note for note in ax.texts if isinstance(note, Annotation) and note.arrow_patch.patchB is box]


def test_a_recurrence_is_one_cell_as_a_loop_and_one_per_step_unrolled(ax):
    diagrams.recurrence(ax, steps=3)
    assert boxes(ax).count("cell") == 1 + 3
    assert boxes(ax).count("$x_3$") == 1


def test_a_fixed_vector_is_made_of_the_last_state_and_reaches_every_step_of_the_decoder(ax):
    diagrams.translator(ax, SOURCE, TARGET)
    assert len(arrows_into(ax, "$c = h_S$: one vector")) == 1
    assert len(arrows_into(ax, "$s_1$")) == 1 and len(arrows_into(ax, "$s_2$")) == 2  # from the vector; and from s_1


def test_with_attention_every_state_reaches_the_context_by_an_arrow_as_wide_as_its_weight(ax):
    weights = [0.1, 0.2, 0.6, 0.1]
    diagrams.translator(ax, SOURCE, TARGET, weights)
    widths = [text.arrow_patch.get_linewidth() for text in arrows_into(ax, "$c_2$")]
    assert sorted(widths) == pytest.approx([0.6 + 6 * weight for weight in sorted(weights)])


def test_there_is_one_weight_for_each_source_word(ax):
    with pytest.raises(ValueError, match="one weight for each of 4 source words, got 2"):
        diagrams.translator(ax, SOURCE, TARGET, [0.5, 0.5])


@pytest.mark.parametrize("pre_norm", [True, False])
def test_the_norm_stands_in_the_stream_only_where_it_comes_after(ax, pre_norm):
    diagrams.transformer_layer(ax, pre_norm)
    norms = [text.get_position()[0] for text in ax.texts if text.get_text() == "norm"]
    assert len(norms) == 2 and all((x > 0) == pre_norm for x in norms)


@pytest.mark.parametrize(("steps", "in_colour"), [(8, 8 + 4 + 2 + 1), (6, 6 + 3 + 2 + 1), (1, 1)])
def test_the_last_state_is_joined_of_all_steps_in_as_many_rounds_as_halvings(ax, steps, in_colour):
    diagrams.rounds(ax, steps)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert len(dots) == steps * (1 + (steps - 1).bit_length())
    assert sum(dot.get_color() == diagrams.COLOURS[0] for dot in dots) == in_colour
    names = [text.get_text() for text in ax.texts]
    assert names[-1] == (f"1-{steps}" if steps > 1 else "1")
