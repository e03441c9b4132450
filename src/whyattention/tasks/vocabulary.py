"""Sentences as tokens: four reserved tokens, and vocabularies of words or of pieces of words.

A sentence, source or target, is a row of its tokens, then END, then padding. The empty sentence is END alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Array, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PADDING, BEGIN, END, UNKNOWN = 0, 1, 2, 3
RESERVED = ("<padding>", "<begin>", "<end>", "<unknown>")


@dataclass(frozen=True)
class Words:
    """A vocabulary of whole words, numbered from 4 in the order of `words`; any other word is UNKNOWN.

    Raises ValueError if a word is there twice.
    """

    words: tuple[str, ...]

    def __post_init__(self):
        if twice := [word for word, count in Counter(self.words).items() if count > 1]:
            raise ValueError(f"every word must be there once, got {twice[0]!r} more often")

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], size: int | None = None) -> "Words":
        """The words of `sentences`, the most frequent first, those equally frequent by alphabet.

        With `size`, only as many as make a vocabulary of at most that size, the reserved tokens counted. Raises
        ValueError if `size` leaves room for no word, and TypeError for a text that has not been split into words.
        """
        if size is not None and size <= len(RESERVED):
            raise ValueError(f"size must be above {len(RESERVED)}, the number of reserved tokens, got {size}")
        counts = Counter(word for sentence in sentences for word in _split(sentence))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: None if size is None else size - len(RESERVED)]))

    @property
    def size(self) -> int:
        return len(RESERVED) + len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        """One token per word, without END. Raises TypeError for a text that has not been split into words."""
        return [self._numbers.get(word, UNKNOWN) for word in _split(words)]

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """The words before the first END, without padding or BEGIN; UNKNOWN is the word "<unknown>".

        Raises ValueError for a token that has no word.
        """
        names, numbers = RESERVED + self.words, list(_before_end(tokens))
        if outside := [number for number in numbers if not 0 <= number < self.size]:
            raise ValueError(f"tokens must be from 0 to {self.size - 1}, got {outside[0]}")
        return [names[number] for number in numbers]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, start=len(RESERVED))}


@dataclass(frozen=True, eq=False)
class Subwords:
    """A vocabulary of frequent pieces of words, by byte-pair encoding (Sennrich et al. 2016, section 3.2).

    The pieces are made of bytes, so that every text has its tokens, none is unknown, and decoding gives back exactly
    what was encoded. A space belongs to the word that follows it.
    """

    tokenizer: Tokenizer

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Subwords":
        """Learnt from `texts`, the same from the same texts. With few texts it has fewer than `size` tokens.

        Raises ValueError if `size` is below 260, the reserved tokens and the single bytes.
        """
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        if size < len(RESERVED) + len(alphabet):
            raise ValueError(f"size must be at least {len(RESERVED) + len(alphabet)}, got {size}")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=size,
                special_tokens=list(RESERVED),
                # A set's order differs from run to run, and the numbers of the bytes must not.
                initial_alphabet=sorted(alphabet),
                show_progress=False,
            ),
        )
        tokenizer.encode_special_tokens = True  # a text may well hold "<end>", which is five characters and no END
        return cls(tokenizer)

    @property
    def size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The tokens of `text`, without END."""
        return self.tokenizer.encode(text).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text before the first END, without reserved tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.tokenizer.decode(list(_before_end(tokens)))


def check_sentence(name: str, tokens: Int[Array, " time"], vocabulary: int) -> None:
    """Raises ValueError, with `name`, unless `tokens` is one sentence of numbers from 0 to below `vocabulary`.

    While a function is being traced there are no numbers to look at, and the shape alone is checked.
    """
    if tokens.ndim != 1 or tokens.shape[0] == 0:
        raise ValueError(
            f"{name} must be one sentence of shape [time], a token at least, got shape {tokens.shape}; "
            "for a batch use jax.vmap(model)"
        )
    check_tokens(name, tokens, vocabulary)


def check_tokens(name: str, tokens: Int[Array, "..."], vocabulary: int) -> None:
    """Raises ValueError, with `name`, unless `tokens`, where they are not traced, are from 0 to below `vocabulary`."""
    if isinstance(tokens, jax.core.Tracer):
        return
    numbers = np.asarray(tokens)  # NumPy's, which stay numbers where JAX's would be traced
    if numbers.min() < 0 or numbers.max() >= vocabulary:
        raise ValueError(f"{name} must hold tokens from 0 to {vocabulary - 1}, got {numbers}")


def pad(sequences: Sequence[Sequence[int]], length: int | None = None) -> Int[np.ndarray, "pairs length"]:
    """Each sequence, END, then padding up to `length` tokens: as many as the longest needs, if it is not given.

    Raises ValueError naming the first sequence that is too long for `length` with its END.
    """
    if length is None:
        length = max(map(len, sequences), default=0) + 1
    rows = np.full((len(sequences), length), PADDING, dtype=np.int32)
    for number, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
        if len(sequence) >= length:
            raise ValueError(f"sequence {number} has {len(sequence)} tokens and END, which is more than {length}")
        row[: len(sequence)] = sequence
        row[len(sequence)] = END
    return rows


def _split(words: Sequence[str]) -> Sequence[str]:
    if isinstance(words, str):
        raise TypeError(f"a sentence is a sequence of words, got the text {words[:40]!r}")
    return words


def _before_end(tokens: Iterable[int]) -> Iterator[int]:
    for token in map(int, tokens):
        if token == END:
            return
        if token not in (PADDING, BEGIN):
            yield token
