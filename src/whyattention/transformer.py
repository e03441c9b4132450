"""The Transformer (Vaswani et al. 2017), to translate, and its decoder alone, to continue a text.

Sections and equations are those of the paper. Everything is written for one pair of sentences, or one text; `jax.vmap`
makes a batch of it. The same lines read a sentence all at once, in training, and word by word, when it is being said:
what differs is whether the keys and values of the words before are given with the new words or kept from earlier.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from whyattention.attention import (
    MultiHeadAttention,
    dot_product_attention,
    padding_mask,
    rotate,
    sinusoidal_positions,
)
from whyattention.tasks.vocabulary import check_sentence, check_tokens
from whyattention.training import parameter_count

NormPlace = Literal["pre", "post"]
Positions = Literal["sinusoidal", "rotary", "none"]
NORM_PLACES, POSITIONS = ("pre", "post"), ("sinusoidal", "rotary", "none")


class Kept(NamedTuple):
    """Keys and values of one attention sublayer: all it needs of the words that it may look at.

    Heads come first, so that a step reads each head's rows as they lie in memory.
    """

    keys: Float[Array, "heads time head_features"]
    values: Float[Array, "heads time head_features"]

    @property
    def room(self) -> int:
        """How many words there are, or can be."""
        return self.keys.shape[1]


class Attention(MultiHeadAttention):
    """Multi-head attention that looks at what it has kept, of its own sequence or of another (section 3.2.3).

    `layer.look(x, layer.keep(x), mask)` is `layer(x, mask)`. Positions matter only if it is `rotary`. Raises ValueError
    for an `x` that is not `[time, features]`, as `layer(x)` does.
    """

    def empty(self, length: int) -> Kept:
        """Nothing kept yet, with room for the keys and values of `length` rows."""
        shape = (self.num_heads, length, self.query.shape[0] // self.num_heads)
        return Kept(jnp.zeros(shape), jnp.zeros(shape))

    def keep(
        self, x: Float[Array, "time features"], kept: Kept | None = None, position: int | Int[Array, ""] = 0
    ) -> Kept:
        """The keys and values of `x`, whose first row stands at `position`; with `kept`, that with these put in."""
        keys, values = self._by_head(x, self.key), self._by_head(x, self.value)
        if self.rotary:
            keys = _turned(keys, position)
        if kept is None:
            return Kept(keys, values)
        put = jax.lax.dynamic_update_slice_in_dim
        return Kept(put(kept.keys, keys, position, axis=1), put(kept.values, values, position, axis=1))

    def look(
        self,
        x: Float[Array, "query features"],
        kept: Kept,
        mask: Bool[Array, "query key"],
        position: int | Int[Array, ""] = 0,
    ) -> Float[Array, "query features"]:
        """What the rows of `x` find; `mask` is True where a row may look."""
        heads = jax.vmap(dot_product_attention, in_axes=(0, 0, 0, None), out_axes=1)
        return heads(self._queries(x, position), *kept, mask).reshape(x.shape) @ self.output[...]

    def weights_on(
        self, x: Float[Array, "query features"], kept: Kept, mask: Bool[Array, "query key"]
    ) -> Float[Array, "heads query key"]:
        """Where the rows of `x` look, by head."""
        # With the identity matrix for values, the weighted mean of the values is the row of weights.
        heads = jax.vmap(dot_product_attention, in_axes=(0, 0, None, None))
        return heads(self._queries(x, 0), kept.keys, jnp.eye(kept.room), mask)

    def _queries(self, x, position):
        queries = self._by_head(x, self.query)
        return _turned(queries, position) if self.rotary else queries

    def _by_head(self, x, kernel):
        features = self.query.shape[0]
        if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] != features:
            raise ValueError(f"Attention expects [time, {features}] with a time step, got shape {x.shape}")
        return (x @ kernel[...]).reshape(x.shape[0], self.num_heads, -1).swapaxes(0, 1)


class AddNorm(nnx.Module):
    """The residual connection around a sublayer, and the layer norm: `after(x, sublayer(before(x)))`.

    "post" is the paper's LayerNorm(x + Sublayer(x)) (section 3.1). "pre" is x + Sublayer(LayerNorm(x)), which leaves a
    path from the last layer to the first that nothing is done to (Xiong et al. 2020, figure 1b; used before them).
    """

    def __init__(self, features: int, place: NormPlace, *, rngs: nnx.Rngs):
        if place not in NORM_PLACES:
            raise ValueError(f"norm must be one of {', '.join(NORM_PLACES)}; got {place!r}")
        self.place = place
        self.norm = nnx.LayerNorm(features, rngs=rngs)

    def before(self, x: Float[Array, "time features"]) -> Float[Array, "time features"]:
        return self.norm(x) if self.place == "pre" else x

    def after(
        self, x: Float[Array, "time features"], found: Float[Array, "time features"]
    ) -> Float[Array, "time features"]:
        return x + found if self.place == "pre" else self.norm(x + found)


class FeedForward(nnx.Module):
    """max(0, x W1 + b1) W2 + b2, every word by itself (section 3.3, equation 2); with another `activation`, that."""

    def __init__(
        self,
        features: int,
        width: int,
        *,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        rngs: nnx.Rngs,
    ):
        self.activation = activation
        self.wide = nnx.Linear(features, width, rngs=rngs)
        self.narrow = nnx.Linear(width, features, rngs=rngs)

    def __call__(self, x: Float[Array, "time features"]) -> Float[Array, "time features"]:
        return self.narrow(self.activation(self.wide(x)))


class EncoderLayer(nnx.Module):
    """Self-attention, then the feed-forward network (section 3.1, "Encoder"); with a causal mask, a decoder alone."""

    def __init__(
        self,
        features: int,
        num_heads: int,
        *,
        width: int,
        norm: NormPlace,
        rotary: bool,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        rngs: nnx.Rngs,
    ):
        self.attention_norm = AddNorm(features, norm, rngs=rngs)
        self.attention = Attention(features, num_heads, rotary=rotary, rngs=rngs)
        self.feed_forward_norm = AddNorm(features, norm, rngs=rngs)
        self.feed_forward = FeedForward(features, width, activation=activation, rngs=rngs)

    def attend(self, x, mask, kept, position):
        """The first sublayer: (x, what is kept now)."""
        rows = self.attention_norm.before(x)
        kept = self.attention.keep(rows, kept, position)
        return self.attention_norm.after(x, self.attention.look(rows, kept, mask, position)), kept

    def transform(self, x):
        """The last sublayer."""
        return self.feed_forward_norm.after(x, self.feed_forward(self.feed_forward_norm.before(x)))

    def __call__(
        self,
        x: Float[Array, "time features"],
        mask: Bool[Array, "time key"],
        kept: Kept | None = None,
        position: int | Int[Array, ""] = 0,
    ) -> tuple[Float[Array, "time features"], Kept]:
        x, kept = self.attend(x, mask, kept, position)
        return self.transform(x), kept

    def weights(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"]
    ) -> Float[Array, "heads time time"]:
        """Where each word looks in its own sentence."""
        return self.attention.weights(self.attention_norm.before(x), mask)


class DecoderLayer(EncoderLayer):
    """Between the two sublayers a third, which looks at the output of the encoder (section 3.1, "Decoder").

    It is never rotary: how far a word of one sentence stands from a word of another means little.
    """

    def __init__(self, features: int, num_heads: int, *, width: int, norm: NormPlace, rotary: bool, rngs: nnx.Rngs):
        super().__init__(features, num_heads, width=width, norm=norm, rotary=rotary, rngs=rngs)
        self.cross_norm = AddNorm(features, norm, rngs=rngs)
        self.cross_attention = Attention(features, num_heads, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "time features"],
        mask: Bool[Array, "time key"],
        source: Kept,
        source_mask: Bool[Array, "time source"],
        kept: Kept | None = None,
        position: int | Int[Array, ""] = 0,
    ) -> tuple[Float[Array, "time features"], Kept]:
        x, kept = self.attend(x, mask, kept, position)
        found = self.cross_attention.look(self.cross_norm.before(x), source, source_mask)
        return self.transform(self.cross_norm.after(x, found)), kept

    def cross_weights(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"], source: Kept, source_mask
    ) -> Float[Array, "heads time source"]:
        """Where each word looks in the source."""
        x, _ = self.attend(x, mask, None, 0)
        return self.cross_attention.weights_on(self.cross_norm.before(x), source, source_mask)


class Memory(NamedTuple):
    """What the decoder may look at: for each of its layers the encoder's output, as keys and values."""

    layers: tuple[Kept, ...]
    mask: Bool[Array, " source"]


class State(NamedTuple):
    """The cache of a decoder: what each layer keeps of the words so far, and how many they are."""

    layers: tuple[Kept | None, ...]
    position: int | Int[Array, ""]


class AttentionWeights(NamedTuple):
    """Where a Transformer looks: each row is a word that looks, and adds up to 1, or to 0 if it may look nowhere."""

    encoder: Float[Array, "layers heads source source"]
    decoder: Float[Array, "layers heads target target"]
    cross: Float[Array, "layers heads target source"]


class Transformer(nnx.Module):
    """An encoder and a decoder of `num_layers` each (section 3), a translator like `seq2seq.Seq2Seq`.

    The target's embedding is also the matrix that makes the logits (section 3.4, and it multiplies embeddings by
    sqrt(features)); with `one_vocabulary` for both languages it is the source's embedding too, as in the paper. `width`
    is that of the feed-forward networks, 4 * `features` unless given. With `norm="pre"` the sum that the last layer
    leaves is normed once more. There is no dropout.

    `positions` are "sinusoidal", added to the embeddings (section 3.5), "rotary", which turn queries and keys of
    self-attention (Su et al. 2021), or "none". None of them, nor any parameter, depends on a sentence's length.

    `step` keeps `cache_length` words; the attribute may be changed at any time. One word more, and the logits are NaN;
    outside a jitted or mapped function, that is a ValueError. So is a token beyond the vocabulary.

    Raises ValueError for other places of the norm or other positions, if `num_heads` does not divide `features`, if
    positions have an odd number of features to work on, or if there is no layer.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        features: int,
        *,
        num_heads: int,
        num_layers: int,
        width: int | None = None,
        norm: NormPlace = "pre",
        positions: Positions = "sinusoidal",
        one_vocabulary: bool = False,
        cache_length: int = 128,
        rngs: nnx.Rngs,
    ):
        _check_layers(num_layers, positions)
        if one_vocabulary and source_vocabulary != target_vocabulary:
            raise ValueError(f"one vocabulary has one size, got {source_vocabulary} and {target_vocabulary}")
        self.source_vocabulary = source_vocabulary
        self.target_vocabulary = target_vocabulary
        self.num_layers = num_layers
        self.positions = positions
        self.cache_length = cache_length
        self.target_embedding = nnx.Embed(target_vocabulary, features, rngs=rngs)
        self.source_embedding = None if one_vocabulary else nnx.Embed(source_vocabulary, features, rngs=rngs)
        sizes = {"width": 4 * features if width is None else width, "norm": norm, "rotary": positions == "rotary"}
        for layer in range(num_layers):
            setattr(self, f"encoder{layer}", EncoderLayer(features, num_heads, **sizes, rngs=rngs))
            setattr(self, f"decoder{layer}", DecoderLayer(features, num_heads, **sizes, rngs=rngs))
        self.encoder_norm = nnx.LayerNorm(features, rngs=rngs) if norm == "pre" else None
        self.decoder_norm = nnx.LayerNorm(features, rngs=rngs) if norm == "pre" else None

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        return [getattr(self, f"encoder{layer}") for layer in range(self.num_layers)]

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        return [getattr(self, f"decoder{layer}") for layer in range(self.num_layers)]

    def encode(self, source: Int[Array, " source"]) -> Memory:
        x, mask = self._embed_source(source)
        for layer in self.encoder_layers:
            x, _ = layer(x, mask)
        return self._memory(x, source)

    def start(self, memory: Memory) -> State:
        """No word said yet."""
        return _empty(self.cache_length, self.decoder_layers)

    def step(self, memory: Memory, state: State, token: Int[Array, ""]) -> tuple[State, Float[Array, " vocabulary"]]:
        """(state after `token`, logits `[target vocabulary]` of the word that follows it)."""
        _check_step(state, token, self.target_vocabulary)
        state, logits = self._read(memory, state, jnp.asarray(token)[None])
        return state, logits[0]

    def __call__(
        self, source: Int[Array, " source"], target_in: Int[Array, " target"]
    ) -> Float[Array, "target vocabulary"]:
        """Logits `[target, target vocabulary]`: those at i follow from the source and target_in up to i."""
        check_sentence("target_in", target_in, self.target_vocabulary)
        _, logits = self._read(self.encode(source), State((None,) * self.num_layers, 0), target_in)
        return logits

    def attention_weights(self, source: Int[Array, " source"], target_in: Int[Array, " target"]) -> AttentionWeights:
        """Where every head of every layer looks."""
        check_sentence("target_in", target_in, self.target_vocabulary)
        x, mask = self._embed_source(source)
        encoder, decoder, cross = [], [], []
        for layer in self.encoder_layers:
            encoder.append(layer.weights(x, mask))
            x, _ = layer(x, mask)
        memory = self._memory(x, source)
        x, mask = self._embed(self.target_embedding, target_in, 0, len(target_in)), _past(len(target_in))
        source_mask = jnp.broadcast_to(memory.mask, (len(target_in), len(source)))
        for layer, kept in zip(self.decoder_layers, memory.layers, strict=True):
            decoder.append(layer.weights(x, mask))
            cross.append(layer.cross_weights(x, mask, kept, source_mask))
            x, _ = layer(x, mask, kept, source_mask)
        return AttentionWeights(*map(jnp.stack, (encoder, decoder, cross)))

    def attention(
        self, source: Int[Array, " source"], target_in: Int[Array, " target"]
    ) -> Float[Array, "target source"]:
        """One look for each word, as `Seq2Seq.attention` has it: the mean over heads and layers of looks at the source.

        A mean of many looks need not be where any one of them is; see `attention_weights`.
        """
        return jnp.mean(self.attention_weights(source, target_in).cross, axis=(0, 1))

    def _embed_source(self, source):
        """The words of the source, and where each may look."""
        check_sentence("source", source, self.source_vocabulary)
        embedding = self.target_embedding if self.source_embedding is None else self.source_embedding
        mask = jnp.broadcast_to(padding_mask(source), (len(source), len(source)))
        return self._embed(embedding, source, 0, len(source)), mask

    def _embed(self, embedding, tokens, position, limit):
        return _place(embedding, tokens, self.positions, position, limit)

    def _memory(self, x, source):
        x = x if self.encoder_norm is None else self.encoder_norm(x)
        return Memory(tuple(layer.cross_attention.keep(x) for layer in self.decoder_layers), padding_mask(source))

    def _read(self, memory, state, tokens):
        """(state after `tokens`, the logits that follow each), the first token standing at `state.position`."""
        limit = _room(state, tokens)
        x = self._embed(self.target_embedding, tokens, state.position, limit)
        mask = _past(len(tokens), limit, state.position)
        source_mask = jnp.broadcast_to(memory.mask, (len(tokens), *memory.mask.shape))
        layers = []
        for layer, source, kept in zip(self.decoder_layers, memory.layers, state.layers, strict=True):
            x, kept = layer(x, mask, source, source_mask, kept, state.position)
            layers.append(kept)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return _after(state, layers, tokens, self.target_embedding.attend(x), limit)


class TransformerLM(nnx.Module):
    """The decoder alone, which has nothing to look at but the text so far: the logits at t see tokens 0 ... t.

    As in GPT-2 (Radford et al. 2019): GELU, and the norm before each sublayer. `positions` are those of
    `Transformer`; with "none", only the causal mask tells one order of the tokens from another. It carries no state
    from one text to the next: what it was never trained to look back over, it cannot use. Raises ValueError as
    `Transformer` does, and for tokens that are not one text.
    """

    def __init__(
        self,
        vocabulary_size: int,
        features: int,
        *,
        num_heads: int,
        num_layers: int,
        positions: Positions = "sinusoidal",
        rngs: nnx.Rngs,
    ):
        _check_layers(num_layers, positions)
        self.features = features
        self.num_layers = num_layers
        self.positions = positions
        self.embedding = nnx.Embed(vocabulary_size, features, rngs=rngs)
        sizes = {"width": 4 * features, "norm": "pre", "rotary": positions == "rotary", "activation": jax.nn.gelu}
        for layer in range(num_layers):
            setattr(self, f"layer{layer}", EncoderLayer(features, num_heads, **sizes, rngs=rngs))
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.readout = nnx.Linear(features, vocabulary_size, rngs=rngs)

    @property
    def layers(self) -> list[EncoderLayer]:
        return [getattr(self, f"layer{layer}") for layer in range(self.num_layers)]

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        check_sentence("tokens", tokens, self.embedding.num_embeddings)
        return self._read(State((None,) * self.num_layers, 0), tokens)[1]

    def start(self, length: int) -> State:
        """Nothing read yet, with room for `length` tokens."""
        return _empty(length, self.layers)

    def step(self, state: State, token: Int[Array, ""]) -> tuple[State, Float[Array, " vocabulary"]]:
        """(state after `token`, logits of the token that follows it). Beyond the room there is: as in `Transformer`."""
        _check_step(state, token, self.embedding.num_embeddings)
        state, logits = self._read(state, jnp.asarray(token)[None])
        return state, logits[0]

    def generate(
        self, prompt: Int[Array, " prompt"], length: int, *, key: Array, temperature: float = 1.0
    ) -> Int[Array, " length"]:
        """`length` tokens drawn one after another after reading `prompt`, from softmax(logits / temperature).

        Keys and values of what has been read are kept. Raises ValueError if the prompt is no text of the vocabulary, or
        if `length` or `temperature` is not positive.
        """
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if length < 1:
            raise ValueError(f"the length must be at least 1, got {length}")
        check_sentence("prompt", prompt, self.embedding.num_embeddings)
        state, logits = self._read(self.start(len(prompt) + length), prompt)

        def step(carry, key):
            state, logits = carry
            token = jax.random.categorical(key, logits / temperature)
            return self.step(state, token), token

        _, tokens = jax.lax.scan(step, (state, logits[-1]), jax.random.split(key, length))
        return tokens

    def attention_weights(self, tokens: Int[Array, " time"]) -> Float[Array, "layers heads query key"]:
        """Where each head of each layer looks while it reads `tokens`."""
        check_sentence("tokens", tokens, self.embedding.num_embeddings)
        x, mask = _place(self.embedding, tokens, self.positions, 0, len(tokens)), _past(len(tokens))
        weights = []
        for layer in self.layers:
            weights.append(layer.weights(x, mask))
            x, _ = layer(x, mask)
        return jnp.stack(weights)

    def _read(self, state, tokens):
        limit = _room(state, tokens)
        x = _place(self.embedding, tokens, self.positions, state.position, limit)
        mask = _past(len(tokens), limit, state.position)
        layers = []
        for layer, kept in zip(self.layers, state.layers, strict=True):
            x, kept = layer(x, mask, kept, state.position)
            layers.append(kept)
        return _after(state, layers, tokens, self.readout(self.norm(x)), limit)


def matched_transformer(
    source_vocabulary: int,
    target_vocabulary: int,
    features: int,
    *,
    parameters: int,
    num_heads: int,
    num_layers: int,
    **options,
) -> Callable[[nnx.Rngs], Transformer]:
    """`make(rngs)`: a Transformer whose feed-forward networks are as wide as brings it closest to so many parameters.

    `options` are those of `Transformer`. Raises ValueError if that leaves it more than 2% away.
    """
    if parameters < 1:
        raise ValueError(f"parameters must be at least 1, got {parameters}")

    def make(width, rngs):
        sizes = {"num_heads": num_heads, "num_layers": num_layers, "width": width}
        return Transformer(source_vocabulary, target_vocabulary, features, **sizes, **options, rngs=rngs)

    # Two counts tell all others: every unit of width adds as many parameters.
    two, three = (parameter_count(nnx.eval_shape(lambda n=n: make(n, nnx.Rngs(0)))) for n in (2, 3))
    width = max(1, 2 + round((parameters - two) / (three - two)))
    found = two + (width - 2) * (three - two)
    if abs(found / parameters - 1) > 0.02:
        raise ValueError(
            f"{num_layers} layers of {features} features cannot have about {parameters:,} parameters; "
            f"the closest is {found:,}"
        )
    return lambda rngs: make(width, rngs)


def inverse_square_root_schedule(features: int, warmup: int) -> optax.Schedule:
    """features^-0.5 min(n^-0.5, n warmup^-1.5) at update n = 1, 2, ... (section 5.3, equation 3).

    It rises in a straight line to (features * warmup)^-0.5, and falls with the square root of the updates from there.
    Raises ValueError if either is below 1.
    """
    if min(features, warmup) < 1:
        raise ValueError(f"features and warmup must be at least 1, got {features} and {warmup}")

    def rate(count):  # of updates already made
        return features**-0.5 * jnp.minimum((count + 1.0) ** -0.5, (count + 1.0) * warmup**-1.5)

    return rate


def _check_layers(num_layers, positions):
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    if positions not in POSITIONS:
        raise ValueError(f"positions must be one of {', '.join(POSITIONS)}; got {positions!r}")


def _turned(heads, position):
    """Every head's rows `[heads, time, features]`, the first at `position`, turned by `rotate`."""
    return jax.vmap(rotate, in_axes=(0, None))(heads, position + jnp.arange(heads.shape[1]))


def _place(embedding, tokens, positions, position, limit):
    """Embedded tokens, the first at `position` of at most `limit` (sections 3.4 and 3.5)."""
    x = jnp.sqrt(embedding.features) * embedding(tokens)
    if positions != "sinusoidal":
        return x
    table = sinusoidal_positions(limit, embedding.features)
    return x + jax.lax.dynamic_slice_in_dim(table, position, len(tokens))


def _past(queries, keys=None, position=0):
    """The causal mask `[queries, keys]` of queries of which the first stands at `position` among the keys."""
    keys = queries if keys is None else keys
    return jnp.arange(keys) <= position + jnp.arange(queries)[:, None]


def _empty(length, layers):
    if length < 1:
        raise ValueError(f"a cache needs room for at least one word, got {length}")
    return State(tuple(layer.attention.empty(length) for layer in layers), jnp.int32(0))


def _room(state, tokens):
    """How many words `state` can keep; without a cache, those that are read now."""
    return len(tokens) if state.layers[0] is None else state.layers[0].room


def _check_step(state, token, vocabulary):
    room = state.layers[0].room
    if not isinstance(state.position, jax.core.Tracer) and state.position + 1 > room:
        raise ValueError(f"the cache has room for {room} words, and {int(state.position)} are in it")
    if jnp.shape(token) != ():
        raise ValueError(f"a step reads one token, got shape {jnp.shape(token)}; for a batch use jax.vmap")
    check_tokens("token", token, vocabulary)


def _after(state, layers, tokens, logits, limit):
    """(the state, the logits), which are NaN where words were put beyond the end of the cache."""
    position = state.position + len(tokens)
    return State(tuple(layers), position), jnp.where(position <= limit, logits, jnp.nan)
