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


def sliding_window_mask(length: int, window: int) -> Bool[Array, "query key"]:
    """True where a query may look: at its own position and at the `window` - 1 before it.

    It is the causal mask where `window` >= `length`. Raises ValueError if `window` is below 1.

    >>> sliding_window_mask(4, 2).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    if window < 1:
        raise ValueError(f"a query sees one position at least, its own; got a window of {window}")
    return causal_mask(length) & ~jnp.tril(jnp.ones((length, length), dtype=bool), -window)


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
    angles = _angles(jnp.arange(length), features)
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(length, features)


def rotate(
    x: Float[Array, "time features"], positions: Int[Array, " time"] | None = None
) -> Float[Array, "time features"]:
    """Rotary positions: turns each pair of features (2i, 2i + 1) by position * 10000^(-2i / features) radians.

    Meant for queries and keys, not for values. The product of a query turned for position m and a key turned for n
    depends on m - n alone, and no vector changes its length (Su et al. 2021, equations 16 and 34). `positions`
    default to 0, 1, 2, ... The angles are float32 or finer, what comes back is of the type of `x`. Raises ValueError
    if `x` is not `[time, features]`, if `features` is odd, or if there is not one position for every row.
    """
    if x.ndim != 2 or x.shape[1] % 2:
        raise ValueError(f"features are turned in pairs: x must be [time, even number], got shape {x.shape}")
    positions = jnp.arange(x.shape[0]) if positions is None else positions
    if positions.shape != x.shape[:1]:
        raise ValueError(f"there must be one position for each of {x.shape[0]} rows, got shape {positions.shape}")
    angles = _angles(positions, x.shape[1])
    even, odd, cos, sin = x[:, 0::2], x[:, 1::2], jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
    return turned.astype(jnp.result_type(x, 0.0))


def _angles(positions, features):
    """[time, features / 2] radians: one frequency for every pair of features, from 1 down to about 1 / 10000."""
    return positions[:, None] * 10_000.0 ** (-jnp.arange(0, features, 2) / features)


def dot_product_attention(
    query: Float[Array, "query features"],
    key: Float[Array, "key features"],
    value: Float[Array, "key values"],
    mask: Bool[Array, "query key"] | None = None,
) -> Float[Array, "query values"]:
    """softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, equation 1).

    `mask` is True where a query may look. A query that may look nowhere gets zeros: not NaN, and not an average over
    keys it was forbidden to see. Keys and values must be finite behind the mask too: they are multiplied by zero, and
    0 * NaN is NaN. Raises ValueError if sizes do not fit or a mask is not boolean, `[query, key]`.
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
        projected = self.project(keys)
        values = keys if values is None else values
        if values.ndim != 2 or values.shape[0] != keys.shape[0]:
            raise ValueError(f"there must be one value per key, got {values.shape} values for {keys.shape} keys")
        return self.weights(query, projected, mask) @ values


class MultiHeadAttention(nnx.Module):
    """Self-attention with several heads over one sequence (Vaswani et al. 2017, section 3.2.2).

    Parameters: `query`, `key`, `value` and `output`, each `[features, features]`, no bias. Every head attends in its
    own `features / num_heads` dimensions. With `rotary`, queries and keys are turned by `rotate` for their position in
    the sequence. Raises ValueError if `num_heads` does not divide `features`, or leaves an odd number to turn.
    """

    def __init__(self, features: int, num_heads: int, *, rngs: nnx.Rngs, rotary: bool = False):
        if num_heads < 1 or features < 1 or features % num_heads:
            raise ValueError(f"num_heads must divide features, got {num_heads} heads for {features} features")
        if rotary and features // num_heads % 2:
            raise ValueError(f"a head of {features // num_heads} features cannot be turned in pairs")
        self.num_heads = num_heads
        self.rotary = rotary
        self.query = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.key = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.value = nnx.Param(lecun_normal(rngs.params(), (features, features)))
        self.output = nnx.Param(lecun_normal(rngs.params(), (features, features)))

    def __call__(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"] | None = None
    ) -> Float[Array, "time features"]:
        heads = jax.vmap(dot_product_attention, in_axes=(1, 1, 1, None), out_axes=1)(*self.heads(x), mask)
        return heads.reshape(x.shape) @ self.output[...]

    def weights(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"] | None = None
    ) -> Float[Array, "heads query key"]:
        """Where every head looks: the rows that the values are averaged with."""
        query, key, _ = self.heads(x)
        # With the identity matrix for values, the weighted mean of the values is the row of weights.
        return jax.vmap(dot_product_attention, in_axes=(1, 1, None, None))(query, key, jnp.eye(x.shape[0]), mask)

    def heads(self, x: Float[Array, "time features"]) -> tuple[Float[Array, "time heads head_features"], ...]:
        """Queries, keys and values."""
        features = self.query.shape[0]
        if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] != features:
            raise ValueError(f"MultiHeadAttention expects [time, {features}] with a time step, got shape {x.shape}")
        query, key, value = (
            (x @ kernel[...]).reshape(x.shape[0], self.num_heads, -1) for kernel in (self.query, self.key, self.value)
        )
        if self.rotary:
            query, key = (jax.vmap(rotate, in_axes=1, out_axes=1)(heads) for heads in (query, key))
        return query, key, value


def blockwise_attention(
    query: Float[Array, "query features"],
    key: Float[Array, "key features"],
    value: Float[Array, "key values"],
    key_mask: Bool[Array, " key"] | None = None,
    *,
    causal: bool = False,
    block_size: int = 256,
) -> Float[Array, "query values"]:
    """What `dot_product_attention` gives, without ever holding a score for every pair: memory is linear in length.

    A block of queries reads the keys block by block and keeps three things per query: the largest score so far, the
    sum of exponentials relative to it, and the values mixed with them (Milakov & Gimelshein 2018, algorithm 3; Rabe &
    Staats 2021). When the largest score grows, the other two are scaled down. The gradient computes each block again
    instead of keeping it, as in Dao et al. 2022. As many operations as full attention, and some more.

    `key_mask` is True at keys that may be looked at by any query (see `padding_mask`), and with `causal` query i may
    look at keys 0 to i only. A query that may look nowhere gets zeros. What is kept between blocks is float32 or finer,
    what comes back is of the type that `dot_product_attention` gives. Raises ValueError where that does, if `key_mask`
    is not boolean with one entry per key, if `causal` is asked for with more keys than queries or fewer, or if
    `block_size` is below 1.
    """
    result = jax.eval_shape(dot_product_attention, query, key, value)  # the same requirements, and the same errors
    queries, keys = query.shape[0], key.shape[0]
    key_mask = jnp.ones(keys, dtype=bool) if key_mask is None else key_mask
    if key_mask.shape != (keys,) or key_mask.dtype != bool:
        raise ValueError(f"key_mask must be boolean, of shape {(keys,)}, got {key_mask.dtype} {key_mask.shape}")
    if causal and queries != keys:
        raise ValueError(f"causal attention needs one query per key, got {queries} queries for {keys} keys")
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    kept = jnp.promote_types(result.dtype, jnp.float32)
    lowest = jnp.finfo(kept).min
    key_blocks = [in_blocks(array, block_size) for array in (key, value, jnp.arange(keys), key_mask)]

    # Both are computed again for the gradient: the scores of one block of keys, and what was mixed before each block.
    @jax.checkpoint
    def attend(query_block):
        query, query_places = query_block

        @jax.checkpoint
        def add_block(so_far, key_block):
            key, value, key_places, mask = key_block
            mask = mask & (key_places <= query_places[:, None]) if causal else mask
            return add_keys(so_far, query, key, value, mask), None

        rows = query.shape[0]
        start = jnp.full(rows, lowest), jnp.zeros(rows, kept), jnp.zeros((rows, value.shape[1]), kept)
        (_, total, mixed), _ = jax.lax.scan(add_block, start, key_blocks)
        return (mixed / jnp.where(total > 0, total, 1)[:, None]).astype(result.dtype)

    scaled = query / jnp.sqrt(query.shape[1])
    mixed = jax.lax.map(attend, [in_blocks(array, block_size) for array in (scaled, jnp.arange(queries))])
    return jax.lax.collapse(mixed, 0, 2)[:queries]


def add_keys(
    so_far: tuple[Float[Array, " query"], Float[Array, " query"], Float[Array, "query values"]],
    query: Float[Array, "query features"],
    key: Float[Array, "key features"],
    value: Float[Array, "key values"],
    mask: Bool[Array, "#query key"],
) -> tuple[Float[Array, " query"], Float[Array, " query"], Float[Array, "query values"]]:
    """What queries have seen once they have looked at more keys (Milakov & Gimelshein 2018, algorithm 3).

    It is three things per query: the largest score, the sum of exp(score - largest), and the values mixed with those
    weights. `query` is scaled by 1 / sqrt(features) already. All three should be float32 or finer: in 16 bits they
    would be rounded once for every block.
    """
    largest, total, mixed = so_far
    scores = jnp.where(mask, (query @ key.T).astype(mixed.dtype), jnp.finfo(mixed.dtype).min)
    # No gradient: total and mixed are both relative to it, and their quotient does not depend on it.
    new_largest = jnp.maximum(largest, jax.lax.stop_gradient(scores.max(axis=1)))
    weights = jnp.where(mask, jnp.exp(scores - new_largest[:, None]), 0.0)
    shrink = jnp.exp(largest - new_largest)
    total = shrink * total + weights.sum(axis=1)
    return new_largest, total, shrink[:, None] * mixed + weights @ value


def in_blocks(array: Array, size: int) -> Array:
    """`[n, ...]` cut into `[blocks, size, ...]`, or one block of n if that is smaller; the end is filled with zeros."""
    size = min(size, len(array))
    missing = -len(array) % size
    padded = jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
    return padded.reshape(len(padded) // size, size, *array.shape[1:])
