"""The linear read-out finds what is there, and no more than chance where nothing is."""

import jax
import jax.numpy as jnp
import pytest

from whyattention.measure.readout import linear_readout_accuracy


def samples(seed, signal, count=400, classes=4, hidden=6):
    label_key, noise_key = jax.random.split(jax.random.key(seed))
    labels = jax.random.randint(label_key, (count,), 0, classes)
    code = jnp.eye(classes, hidden) * signal + 3.0
    return code[labels] + 0.1 * jax.random.normal(noise_key, (count, hidden)), labels


def test_it_reads_a_code_with_an_offset():
    assert linear_readout_accuracy(*samples(0, 1.0), *samples(1, 1.0), classes=4) > 0.99


def test_it_is_at_chance_without_a_code():
    assert abs(linear_readout_accuracy(*samples(0, 0.0), *samples(1, 0.0), classes=4) - 0.25) < 0.1


def test_it_is_scored_on_fresh_samples():
    """With more inputs than samples the fit is perfect on its own samples, and worth nothing on others."""
    noise = samples(0, 0.0, count=30, hidden=40)
    assert linear_readout_accuracy(*noise, *noise, classes=4) == 1
    assert linear_readout_accuracy(*noise, *samples(1, 0.0, count=400, hidden=40), classes=4) < 0.5


def test_a_label_for_each_state():
    states, labels = samples(0, 1.0)
    with pytest.raises(ValueError, match=r"\(400, 6\) and \(399,\)"):
        linear_readout_accuracy(states, labels[:-1], states, labels, classes=4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda states, labels: (states.at[0, 0].set(jnp.nan), labels), "finite"),
        (lambda states, labels: (states, labels.at[0].set(4)), "from 0 to 3, got 0 to 4"),
        (lambda states, labels: (states, labels.at[0].set(-1)), "from 0 to 3, got -1"),
        (lambda states, labels: (states[:, :5], labels), "5 wide and fresh ones 6"),
        (lambda states, labels: (states[:0], labels[:0]), r"\(0, 6\)"),
    ],
)
def test_what_cannot_be_fitted_is_named(change, words):
    given = samples(0, 1.0)
    with pytest.raises(ValueError, match=words):
        linear_readout_accuracy(*change(*given), *given, classes=4)


def test_traced_states_are_scored_as_known_ones_are():
    known = linear_readout_accuracy(*samples(0, 1.0), *samples(1, 1.0), classes=4)
    assert (
        jax.jit(lambda *arrays: linear_readout_accuracy(*arrays, classes=4))(*samples(0, 1.0), *samples(1, 1.0))
        == known
    )
