"""Attention over one sequence: scores, masks, heads. `jax.vmap` makes a batch of it."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

PADDING = 0

lecun_normal = nnx.initializers.lecun_normal()


def causal_mask(length: int) -> Bool[Array, "query key"]:
    """True where a query may look: at its own position and before.

    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return jnp.tril(jnp.ones((length, length), dtype=bool))


def padding_mask(tokens: Int[Array, "*axes time"]) -> Bool[Array, "*axes time"]:
    """True where there is a real token.

    >>> padding_mask(jnp.array([5, 4, 2, 0, 0])).astype(int).tolist()
    [1, 1, 1, 0, 0]
    """
    return tokens != PADDING


def sinusoidal_positions(length: int, features: int) -> Float[Array, "length features"]:
    """Sines and cosines of the position, in wavelengths from 2 pi to 10000 * 2 pi (Vaswani et al. 2017, section 3.5).

    They have no parameters and no end. Raises ValueError if `features` is odd.
    """
    if features % 2:
        raise ValueError(f"positions are pairs of a sine and a cosine, so features must be even; got {features}")
    frequencies = 10_000.0 ** (-jnp.arange(0, features, 2) / features)
    angles = jnp.arange(length)[:, None] * frequencies
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(length, features)


def dot_product_attention(
    query: Float[Array, "query features"],
    key: Float[Array, "key features"],
    value: Float[Array, "key values"],
    mask: Bool[Array, "query key"] | None = None,
) -> Float[Array, "query values"]:
    """softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, equation 1).

    `mask` is True where a query may look. A query that may look nowhere gets zeros: not NaN, and not an average over
    keys it was forbidden to see. Raises ValueError if sizes do not fit or a mask is not `[query, key]`.
    """
    if query.ndim != 2 or key.ndim != 2 or query.shape[1] != key.shape[1]:
        raise ValueError(
            f"query and key must be [query, features] and [key, features], got {query.shape} and {key.shape}"
        )
    if value.ndim != 2 or value.shape[0] != key.shape[0]:
        raise ValueError(f"there must be one value per key, got {value.shape} values for {key.shape} keys")
    if 0 in query.shape or 0 in key.shape:
        raise ValueError(f"attention needs a query, a key and a feature, got {query.shape} and {key.shape}")
    scores = query @ key.T / jnp.sqrt(query.shape[1])
    if mask is None:
        return jax.nn.softmax(scores, axis=-1) @ value
    if mask.shape != scores.shape:
        raise ValueError(f"mask must have shape [query, key] = {scores.shape}, got {mask.shape}")
    if mask.dtype != bool:  # a float mask that is added to scores elsewhere would mean the opposite here
        raise ValueError(f"mask must be boolean, True where a query may look, got dtype {mask.dtype}")
    return _masked_softmax(scores, mask) @ value


def _masked_softmax(scores, mask):
    """softmax over the last axis where `mask` is true, zero elsewhere; all zeros where it is true nowhere."""
    scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0.0)


# Computed again for the gradient: to keep tanh for every pair of words takes far more memory, and more time than tanh.
@jax.checkpoint
def _additive_scores(query, keys, score):
    return jnp.tanh(query + keys) @ score


class AdditiveAttention(nnx.Module):
    """Attention whose score is a small network (Bahdanau et al. 2014, section 3.1 and appendix A.1.2).

        e_j = v^T tanh(W_a s + U_a h_j)    alpha_j = exp(e_j) / sum_k exp(e_k)    c = sum_j alpha_j h_j

    for the query s, the decoder's state, and the keys h_j, the encoder's annotations. Parameters: `query_kernel` W_a
    `[query_features, hidden_size]`, `key_kernel` U_a `[key_features, hidden_size]`, `score` v `[hidden_size]`; no
    biases, as in the paper. U_a h_j is the same for every query, so `project` computes it once per sentence.
    """

    def __init__(self, query_features: int, key_features: int, hidden_size: int, *, rngs: nnx.Rngs):
        if min(query_features, key_features, hidden_size) < 1:
            raise ValueError(f"sizes must be at least 1, got {query_features}, {key_features} and {hidden_size}")
        self.query_kernel = nnx.Param(lecun_normal(rngs.params(), (query_features, hidden_size)))
        self.key_kernel = nnx.Param(lecun_normal(rngs.params(), (key_features, hidden_size)))
        self.score = nnx.Param(lecun_normal(rngs.params(), (hidden_size, 1))[:, 0])

    def project(self, keys: Float[Array, "key features"]) -> Float[Array, "key hidden"]:
        """U_a h_j for every key. Raises ValueError if `keys` is not `[key, key_features]`."""
        features = self.key_kernel.shape[0]
        if keys.ndim != 2 or keys.shape[1] != features:
            raise ValueError(f"keys must be [key, {features}], got shape {keys.shape}")
        return keys @ self.key_kernel[...]

    def weights(
        self,
        query: Float[Array, " features"],
        projected: Float[Array, "key hidden"],
        mask: Bool[Array, " key"] | None = None,
    ) -> Float[Array, " key"]:
        """alpha_j for one query and the keys that `project` made.

        `mask` is True at the keys that may be looked at; the weights sum to 1 over them, and are all zero where there
        is none. Raises ValueError if sizes do not fit or the mask is not boolean.
        """
        features = self.query_kernel.shape[0]
        if query.shape != (features,):
            raise ValueError(
                f"AdditiveAttention expects one query of shape ({features},), got {query.shape}; "
                "for several use jax.vmap"
            )
        if projected.ndim != 2 or projected.shape[1] != self.score.shape[0] or projected.shape[0] == 0:
            raise ValueError(f"projected keys must be [key, {self.score.shape[0]}], got shape {projected.shape}")
        mask = jnp.ones(projected.shape[0], dtype=bool) if mask is None else mask
        if mask.shape != projected.shape[:1] or mask.dtype != bool:
            raise ValueError(f"mask must be boolean, of shape {projected.shape[:1]}, got {mask.dtype} {mask.shape}")
        return _masked_softmax(_additive_scores(query @ self.query_kernel[...], projected, self.score[...]), mask)

    def __call__(
        self,
        query: Float[Array, " features"],
        keys: Float[Array, "key features"],
        values: Float[Array, "key values"] | None = None,
        mask: Bool[Array, " key"] | None = None,
    ) -> Float[Array, " values"]:
        """The context c: the mean of `values`, or of the keys themselves, weighted by alpha."""
        values = keys if values is None else values
        if values.ndim != 2 or values.shape[0] != keys.shape[0]:
            raise ValueError(f"there must be one value per key, got {values.shape} values for {keys.shape} keys")
        return self.weights(query, self.project(keys), mask) @ values


class MultiHeadAttention(nnx.Module):
    """Self-attention with several heads over one sequence (Vaswani et al. 2017, section 3.2.2).

    Parameters: `query`, `key`, `value` and `output`, each `[features, features]`, no bias. Every head attends in its
    own `features / num_heads` dimensions. Raises ValueError if `num_heads` does not divide `features`.
    """

    def __init__(self, features: int, num_heads: int, *, rngs: nnx.Rngs):
        if num_heads < 1 or features < 1 or features % num_heads:
            raise ValueError(f"num_heads must divide features, got {num_heads} heads for {features} features")
        self.num_heads = num_heads
        self.query = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.key = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.value = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.output = nnx.Param(lecun_normal(rngs.params(), (features, features)))

    def __call__(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"] | None = None
    ) -> Float[Array, "time features"]:
        features = self.query[...].shape[0]
        if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] != features:
            raise ValueError(f"MultiHeadAttention expects [time, {features}] with a time step, got shape {x.shape}")
        query, key, value = (
            (x @ kernel[...]).reshape(x.shape[0], self.num_heads, -1) for kernel in (self.query, self.key, self.value)
        )
        heads = jax.vmap(dot_product_attention, in_axes=(1, 1, 1, None), out_axes=1)(query, key, value, mask)
        return heads.reshape(x.shape) @ self.output[...]
