"""The instruments for the use of context, on models whose use is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.measure.context import (
    first_token_influence,
    horizon,
    horizon_over_targets,
    loss_by_context,
    loss_with_far_context_changed,
)


def sees_back(steps):
    """A model that predicts for certain the token that it read `steps` ago."""

    def model(tokens):
        return 100.0 * jax.nn.one_hot(jnp.concatenate([jnp.zeros(steps, int), tokens])[: len(tokens)], 5)

    return model


TEXTS = jnp.array([[1, 2, 3, 4], [2, 2, 2, 2]])


def test_influence_is_there_exactly_where_the_model_looks():
    influence = first_token_influence(sees_back(2), TEXTS, jnp.array([4, 3]))
    np.testing.assert_allclose(influence, [0, 0, 1, 0], atol=1e-6)


def test_influence_is_an_average_over_texts():
    influence = first_token_influence(sees_back(0), TEXTS, jnp.array([4, 2]))
    np.testing.assert_allclose(influence, [0.5, 0, 0, 0], atol=1e-6)


def test_a_missing_replacement_is_named():
    with pytest.raises(ValueError, match=r"2 replacements, one per text, got shape \(1,\)"):
        first_token_influence(sees_back(0), TEXTS, jnp.array([4]))


def repeats(steps):
    """A text in which every token is the one `steps` before it, so that a model that looks there has no loss."""
    return jnp.tile(jax.random.randint(jax.random.key(0), (steps,), 0, 5), 60 // steps)


TARGETS = jnp.arange(20, 40)


def test_loss_falls_where_the_context_reaches_what_the_model_looks_at():
    losses = loss_by_context(sees_back(2), repeats(3), TARGETS, [1, 2, 3, 20])
    assert losses.shape == (4, 20)
    right = np.asarray(repeats(3))[20:40] == 0  # what `sees_back` finds before the beginning is token 0
    np.testing.assert_allclose(losses[2:], 0, atol=1e-5)
    np.testing.assert_allclose(losses[:2], np.where(right, 0, 100) * np.ones((2, 1)), atol=1e-3)


@pytest.mark.parametrize("change", ["shuffled", "replaced"])
def test_changing_what_the_model_does_not_look_at_changes_nothing(change):
    text = jax.random.randint(jax.random.key(1), (60,), 0, 5)

    def losses(near):
        return loss_with_far_context_changed(
            sees_back(2), text, TARGETS, near, context=10, change=change, key=jax.random.key(2)
        )

    whole = loss_by_context(sees_back(2), text, TARGETS, [10])[0]
    np.testing.assert_allclose(losses([3, 5, 10]), jnp.stack([whole] * 3), atol=1e-4)
    assert not jnp.allclose(losses([2])[0], whole)


def test_shuffling_keeps_the_tokens_and_the_near_order():
    def counts(tokens):  # its prediction depends on which tokens were read, and on the order of the last three alone
        return jnp.zeros((len(tokens), 5)).at[-1].set(jnp.bincount(tokens, length=5) + 10.0 * tokens[-3:].sum())

    text = jax.random.randint(jax.random.key(1), (60,), 0, 5)
    shuffled = loss_with_far_context_changed(
        counts, text, TARGETS, [3], context=10, change="shuffled", key=jax.random.key(2)
    )
    np.testing.assert_allclose(shuffled, loss_by_context(counts, text, TARGETS, [10]), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"change": "lost"}, "'lost'"),
        ({"near": [11]}, "context of 10, got \\(11,\\)"),
        ({"context": 21}, "21 to 21 tokens do not fit before position 20"),
    ],
)
def test_changes_that_do_not_fit_are_named(arguments, words):
    given = {"near": [2], "context": 10, "change": "shuffled", "key": jax.random.key(0)} | arguments
    with pytest.raises(ValueError, match=words):
        loss_with_far_context_changed(sees_back(1), repeats(2), TARGETS, **given)


def test_another_passage_is_another_one_even_if_the_same_key_drew_the_targets():
    text, key = jax.random.randint(jax.random.key(1), (60,), 0, 5), jax.random.key(0)
    targets = jax.random.randint(key, (20,), 10, 60)
    replaced = loss_with_far_context_changed(sees_back(2), text, targets, [2], context=10, change="replaced", key=key)
    assert not jnp.allclose(replaced[0], loss_by_context(sees_back(2), text, targets, [10])[0])


def test_losses_are_the_same_inside_jit():
    losses = jax.jit(lambda text: loss_by_context(sees_back(2), text, TARGETS, [1, 3]))(repeats(3))
    np.testing.assert_allclose(losses, loss_by_context(sees_back(2), repeats(3), TARGETS, [1, 3]), atol=1e-5)


def test_targets_beyond_the_text_are_named():
    with pytest.raises(ValueError, match="position 60, beyond a text of 60 tokens"):
        loss_by_context(sees_back(1), repeats(2), jnp.array([30, 60]), [1])


@pytest.mark.parametrize("contexts", [[0, 3], [3, 25]])
def test_contexts_that_do_not_fit_are_named(contexts):
    with pytest.raises(ValueError, match=f"contexts of {contexts[0]} to {contexts[1]}"):
        loss_by_context(sees_back(1), repeats(2), TARGETS, contexts)


def test_the_horizon_is_where_the_perplexity_comes_within_one_per_cent():
    excess = np.array([1.0, 0.03, 0.01, 0.001, 0.0])
    assert horizon([1, 10, 20, 50, 100], np.log1p(excess)) == pytest.approx(20)
    # Halfway between 0.02 and 0 in the excess is halfway between 10 and 1000 in the logarithm.
    assert horizon([1, 10, 1000], np.log1p([1.0, 0.02, 0.0])) == pytest.approx(100, rel=0.01)
    assert horizon([1, 10], np.log1p([0.005, 0.0])) == 1
    # A dip that does not last is no horizon, and context that hurts is not used.
    assert horizon([1, 10, 20, 50, 100], np.log1p([1.0, 0.001, 0.05, 0.0, 0.0])) > 20
    assert horizon([1, 10, 100], np.log1p([0.02, 0.0, 0.5])) == pytest.approx(10**0.5)


def test_losses_that_do_not_fit_the_contexts_are_named():
    with pytest.raises(ValueError, match=r"\(3,\) for \[1.0, 2.0\]"):
        horizon([1, 2], np.zeros(3))


@pytest.mark.parametrize(
    ("contexts", "losses", "share", "words"),
    [
        ([0, 1], [1.0, 0.0], 0.01, "rising contexts from 1"),
        ([], [], 0.01, "rising contexts from 1"),
        ([1, 2], [1.0, np.nan], 0.01, "finite losses"),
        ([1, 2], [np.inf, 0.0], 0.01, "finite losses"),
        ([1, 2], [1.0, 0.0], 0.0, "positive share"),
        ([1, 2], [1.0, 0.0], np.nan, "positive share"),
    ],
)
def test_what_has_no_horizon_is_named(contexts, losses, share, words):
    with pytest.raises(ValueError, match=words):
        horizon(contexts, np.array(losses), share)


def test_resampled_horizons_spread_around_the_one_of_all_targets():
    noise = np.random.default_rng(0).normal(size=(3, 100))
    losses = np.array([[1.0], [0.02], [0.0]]) + 0.05 * noise
    found = horizon_over_targets([1, 10, 100], losses)
    assert found.shape == (200,) and found.min() < horizon([1, 10, 100], losses.mean(axis=1)) < found.max()
    exact = horizon_over_targets([1, 10, 100], losses.mean(axis=1, keepdims=True) * np.ones(100))
    np.testing.assert_allclose(exact, horizon([1, 10, 100], losses.mean(axis=1)))
