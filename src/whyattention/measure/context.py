"""How much of its context a language model uses."""

from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

LanguageModel = Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]]

AT_ONCE = 256  # texts that a model reads side by side: enough to keep a device busy, few enough for its memory


def first_token_influence(
    model: LanguageModel,
    tokens: Int[Array, "texts time"],
    replacements: Int[Array, " texts"],
) -> Float[Array, " time"]:
    """How far the prediction at each position moves when the first token is another one, averaged over texts.

    The distance is the total variation between the two distributions of the next token, half the sum of absolute
    differences of probabilities: 0 if the first token no longer matters, 1 if it decides everything.

    Raises ValueError if there is not one replacement per text.
    """
    if replacements.shape != tokens.shape[:1]:
        raise ValueError(f"expected {tokens.shape[0]} replacements, one per text, got shape {replacements.shape}")
    changed = jnp.asarray(tokens).at[:, 0].set(replacements)
    before, after = (jax.nn.softmax(jax.vmap(model)(texts)) for texts in (tokens, changed))
    return jnp.mean(jnp.abs(before - after).sum(-1) / 2, axis=0)


def loss_by_context(
    model: LanguageModel, text: Int[Array, " characters"], targets: Int[Array, " targets"], contexts: Sequence[int]
) -> Float[Array, "contexts targets"]:
    """-ln p(text[t] | the n tokens before it) for every target position t and every n of `contexts`, in nats.

    The same targets are scored for every n, so that two rows differ by their context alone (Khandelwal et al. 2018,
    section 4); the model reads each context from its beginning. `targets` are known numbers, not traced ones. Raises
    ValueError if a context is shorter than one token or reaches back before the text, or if a target lies beyond it.
    """
    _check_reach(text, targets, min(contexts), max(contexts))
    rows = [_losses(model, _windows(text, targets, context), text[targets]) for context in contexts]
    return jnp.stack(rows)


def loss_with_far_context_changed(
    model: LanguageModel,
    text: Int[Array, " characters"],
    targets: Int[Array, " targets"],
    near: Sequence[int],
    *,
    context: int,
    change: Literal["shuffled", "replaced"],
    key: Array,
) -> Float[Array, "near targets"]:
    """-ln p(text[t] | `context` tokens before it, of which only the last n are left as they were), in nats.

    For every target t and every n of `near`. The tokens before those n are shuffled among themselves, so that what they
    are is left but not their order, or replaced by a passage from a random place in the text (Khandelwal et al. 2018,
    figure 2). Raises ValueError for another `change`, or if sizes do not fit.
    """
    if change not in ("shuffled", "replaced"):
        raise ValueError(f"change must be 'shuffled' or 'replaced', got {change!r}")
    _check_reach(text, targets, context, context)
    if not all(0 <= n <= context for n in near):
        raise ValueError(f"near must lie between 0 and the context of {context}, got {tuple(near)}")
    windows, position = _windows(text, targets, context), jnp.arange(context)
    # Sorting by these numbers puts the far tokens in random order before the near ones, which stay as they are.
    order = jax.random.uniform(jax.random.fold_in(key, 0), windows.shape)
    # Not from `key` itself: a caller that drew the targets with it would get the very same places again.
    places = jax.random.randint(jax.random.fold_in(key, 1), targets.shape, context, len(text))
    elsewhere = _windows(text, places, context)

    def changed(far):
        if change == "replaced":
            return jnp.where(far, elsewhere, windows)
        return jnp.take_along_axis(windows, jnp.argsort(jnp.where(far, order, 1 + position)), axis=1)

    rows = jnp.concatenate([changed(position < context - n) for n in near])
    return _losses(model, rows, jnp.tile(text[targets], len(near))).reshape(len(near), len(targets))


def horizon(contexts: Sequence[int], losses: Float[np.ndarray, " contexts"], share: float = 0.01) -> float:
    """The context beyond which more of it lowers the perplexity by less than `share`.

    `losses` are mean losses in nats for each of the rising `contexts`. Perplexities are compared with the lowest, which
    need not belong to the longest context. Between the last context before it whose perplexity is more than 1 + `share`
    times the lowest and the next one, the excess is interpolated linearly in the logarithm of the context.
    Raises ValueError if sizes do not fit, contexts or `share` are not positive, or a loss is not a finite number.
    """
    contexts, losses = np.asarray(contexts, dtype=float), np.asarray(losses, dtype=float)
    rising = contexts.ndim == 1 and contexts.size > 0 and contexts[0] > 0 and np.all(np.diff(contexts) > 0)
    if not rising or contexts.shape != losses.shape:
        raise ValueError(
            f"expected one loss for each of rising contexts from 1, got {losses.shape} for {contexts.tolist()}"
        )
    if not np.isfinite(losses).all() or not share > 0:
        raise ValueError(f"expected finite losses and a positive share, got {losses.tolist()} and {share}")
    excess = np.expm1(losses - losses.min())
    above = np.flatnonzero(excess[: losses.argmin()] > share)
    if above.size == 0:
        return float(contexts[0])
    last = above[-1]
    part = (excess[last] - share) / (excess[last] - excess[last + 1])
    return float(np.exp((1 - part) * np.log(contexts[last]) + part * np.log(contexts[last + 1])))


def horizon_over_targets(
    contexts: Sequence[int], losses: Float[np.ndarray, "contexts targets"], *, resamples: int = 200, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """`horizon` of as many bootstrap resamples of the targets: how far it hangs on which of them were scored.

    `losses` are those of `loss_by_context`. Each resample draws as many targets with replacement, the same for every
    context (Efron 1979). Raises what `horizon` raises.
    """
    losses = np.asarray(losses, dtype=float)
    targets = losses.shape[1]
    drawn = np.random.default_rng(seed).multinomial(targets, np.full(targets, 1 / targets), size=resamples)
    return np.array([horizon(contexts, mean) for mean in drawn @ losses.T / targets])


def _check_reach(text, targets, shortest, longest):
    positions = np.asarray(targets)  # NumPy's, so that this holds inside jit and vmap as well
    first, last = positions.min(), positions.max()
    if shortest < 1 or first < longest:
        raise ValueError(
            f"contexts of {shortest} to {longest} tokens do not fit before position {first}, the first target"
        )
    if last >= len(text):
        raise ValueError(f"the last target is at position {last}, beyond a text of {len(text)} tokens")


def _windows(text, targets, length):
    """The `length` tokens before each target."""
    return text[targets[:, None] + jnp.arange(-length, 0)]


def _losses(model, windows, answers):
    """-ln p(answer | window) from the logits at the last token of each window, some windows at a time."""

    def loss(window, answer):
        return optax.softmax_cross_entropy_with_integer_labels(model(window)[-1], answer)

    return jax.lax.map(lambda pair: loss(*pair), (windows, answers), batch_size=AT_ONCE)
