"""The small language: right French, one translation per sentence, a full alignment, lengths as wanted."""

import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from whyattention.tasks import english_french
from whyattention.tasks.english_french import SOURCE_WORDS, TARGET_WORDS, detokenise, sentence_pairs

NOUNS = {form: noun for noun in english_french._NOUNS for form in noun.french}
ADJECTIVES = list(english_french._ADJECTIVES.values())


@pytest.fixture(scope="module")
def pairs():
    return sentence_pairs(0, 4000, shortest=4, longest=60)


@pytest.fixture(scope="module")
def french(pairs):
    """All translations, a space before and after each word."""
    return "\n".join(f" {' '.join(pair.target)} " for pair in pairs)


def found(pattern, text):
    return [text[max(0, hit.start() - 40) : hit.end() + 20] for hit in re.finditer(pattern, text)]


# Lengths, seeds, splits


def test_every_length_is_as_likely_and_exact(pairs):
    counts = Counter(len(pair.source) for pair in pairs)
    assert set(counts) == set(range(4, 61))
    assert max(counts.values()) < 2 * 4000 / 57 and min(counts.values()) > 0.5 * 4000 / 57


@pytest.mark.parametrize("length", [4, 15, 16, 80])
def test_any_one_length_can_be_had(length):
    assert all(len(pair.source) == length for pair in sentence_pairs(1, 30, shortest=length, longest=length))


def test_a_seed_always_gives_the_same_pairs_on_any_machine(pairs):
    assert sentence_pairs(0, 50, shortest=4, longest=60) == pairs[:50]
    assert sentence_pairs(1, 50, shortest=4, longest=60) != pairs[:50]
    assert sentence_pairs(0, 0, shortest=4, longest=4) == []
    (first,) = sentence_pairs(0, 1, shortest=12, longest=12)
    assert (first.source_text, first.target_text) == (
        "All the bees rarely see a tool and the large hat.",
        "Toutes les abeilles voient rarement un outil et le grand chapeau.",
    )


def test_no_seed_brings_a_test_sentence_into_training():
    train = {pair.source for pair in sentence_pairs(0, 800, shortest=4, longest=5)}
    test = {pair.source for pair in sentence_pairs(0, 200, shortest=4, longest=5, split="test")}
    assert len(train) > 500 and len(test) > 100 and not train & test


def test_one_sentence_in_five_is_for_testing(pairs):
    share = sum(english_french._split(["a", str(number)]) == "test" for number in range(5000)) / 5000
    assert abs(share - 0.2) < 0.02 and all(english_french._split(pair.source) == "train" for pair in pairs)


@pytest.mark.parametrize("wrong", [{"shortest": 3}, {"shortest": 9}, {"count": -1}, {"split": "valid"}])
def test_what_cannot_be_had_is_named(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        sentence_pairs(**{"seed": 0, "count": 1, "shortest": 4, "longest": 8, **wrong})


# One translation, fully aligned, in known words


@pytest.mark.parametrize("choices", [2, 3])
def test_a_sentence_has_one_translation(choices):
    """With so few words to choose from at every turn, clauses come again and again, made in whatever way they can."""

    class FewWords(english_french._Draft):
        def pick(self, options):
            return options[(5 * window + int(self._random() * choices)) % len(options)]

    translations, recurred = {}, 0
    for window in range(12):
        chance = random.Random(window).random
        for number in range(1500):
            draft = FewWords(chance, ("present", "perfect", "future")[number % 3], depth=number % 2)
            source, target = " ".join(draft.source), " ".join(word for word, _ in draft.target)
            recurred += source in translations
            assert translations.setdefault(source, target) == target, source
    assert recurred > 1000


def test_every_word_is_aligned_and_every_link_is_in_range(pairs):
    for pair in pairs:
        assert {target for target, _ in pair.alignment} == set(range(len(pair.target)))
        assert {source for _, source in pair.alignment} == set(range(len(pair.source)))


def test_the_alignment_follows_what_moves(pairs):
    """A noun or an adjective is linked to its translation wherever it went."""
    nouns = {noun.french[n]: noun.english[n] for noun in english_french._NOUNS for n in (1, 0)}
    invariable = {"héros", "souris"}
    moved = 0
    for pair in pairs:
        links = {}
        for target, source in pair.alignment:
            links.setdefault(target, []).append(source)
        previous = -1
        for position, word in enumerate(pair.target):
            if word in nouns and word not in invariable:
                assert [pair.source[source] for source in links[position]] == [nouns[word]]
            moved += max(links[position]) < previous
            previous = min(links[position])
    assert moved > len(pairs)


def test_the_vocabularies_are_known_beforehand(pairs):
    said = {word for pair in pairs for word in pair.source}
    translated = {word for pair in pairs for word in pair.target}
    assert said <= set(SOURCE_WORDS) and list(SOURCE_WORDS) == sorted(set(SOURCE_WORDS))
    assert translated <= set(TARGET_WORDS) and list(TARGET_WORDS) == sorted(set(TARGET_WORDS))
    assert len(set(SOURCE_WORDS) - said) < 5 and len(set(TARGET_WORDS) - translated) < 40
    assert 250 <= len(SOURCE_WORDS) <= 400


def test_texts_are_written_as_people_write():
    assert detokenise(("the", "king", "'s", "dog", ",", "I", "say", ".")) == "The king's dog, I say."
    assert detokenise(("l'", "eau", "n'", "est", "pas", "à", "l'", "école", ".")) == "L'eau n'est pas à l'école."
    assert detokenise(("aujourd'hui", ",", "il", "dort", ".")) == "Aujourd'hui, il dort."
    assert detokenise(()) == ""


# The French

ADVERB = "(?:pas |jamais |souvent |toujours |parfois |rarement |déjà )?"
VOWEL = "[aeiouyàâéèêîôûœ]|h(?!ibou|éros|ache)"


@pytest.mark.parametrize(
    "wrong",
    [
        rf" (le|la|de|que|ne|je|ce|ma|sa) ({VOWEL})",
        rf" (le|un|ce|mon|son|notre|leur|chaque) (beau|vieux|nouveau) ({VOWEL})",
        rf" (l'|d'|qu'|n'|j'|cet|bel|nouvel|vieil) (?!{VOWEL})",
        r" (de|à) les? ",
        r" si il | s' (?!il )",
        r" (du|au|le|un) (l'|les|une) ",
        r" pas (un|une|plusieurs|quelques) ",
        r" de des | d' des ",
        r" (\w+) \1 ",
    ],
)
def test_words_meet_as_they_should(french, wrong):
    assert found(wrong, french) == []


def test_there_is_much_to_elide_and_contract(french):
    for word in ("l'", "d'", "qu'", "n'", "j'", "s'", "du", "des", "au", "aux", "cet", "bel", "vieil", "nouvel"):
        assert found(f" {word} ", french), word
    for words in ("le hibou", "la hache", "l' hôtel", "l' histoire", "(mon|son) (abeille|épée|orange)"):
        assert found(f" {words} ", french), words


def test_des_is_de_before_an_adjective_and_stays_before_a_noun(pairs):
    before = {form for name in {n for names in english_french._BEFORE.values() for n in names}
              for form in english_french._ADJECTIVES[name].french}  # fmt: skip
    seen = set()
    for pair in pairs:
        for position, word in enumerate(pair.target[:-1]):
            if (sources := [s for t, s in pair.alignment if t == position]) and pair.source[sources[0]] == "some":
                following = pair.target[position + 1]
                assert word == ("de" if following in before | {"très"} else "des"), pair.target_text
                seen.add(word)
    assert seen == {"de", "des"}


MASCULINE = {"le", "un", "ce", "cet", "du", "au"}
FEMININE = {"la", "une", "cette"}
PLURAL = {"les", "ces", "mes", "ses", "nos", "leurs", "aux", "plusieurs", "quelques", "deux", "trois"}


def test_articles_agree_with_nouns(pairs):
    checked = Counter()
    for pair in pairs:
        for determiner, word in pairwise(pair.target):
            noun = NOUNS.get(word)
            if noun is None:
                continue
            for words, agrees in (
                (MASCULINE, not noun.feminine and word == noun.french[0]),
                (FEMININE, noun.feminine and word == noun.french[0]),
                (PLURAL, word == noun.french[1]),
            ):
                if determiner in words:
                    assert agrees, pair.target_text
                    checked[determiner] += 1
    assert all(checked[word] > 20 for word in ("le", "la", "un", "une", "cette", "les", "aux"))


def test_adjectives_agree_with_the_noun_before_them_and_with_the_subject(french):
    adjectives = "|".join({form for adjective in ADJECTIVES for form in adjective.french})
    behind = re.findall(rf" (le|la|les|ce|cette|ces|un|une) (\w+) ({adjectives}) ", french)
    predicate = rf"(?:n' |ne )?(?:est|sont|sera|seront) {ADVERB}(?:très )?({adjectives}) "
    predicative = re.findall(rf"(?:^|,) (le|la|les|ce|cette|ces) (\w+) {predicate}", french, flags=re.MULTILINE)
    for examples, enough in ((behind, 500), (predicative, 50)):
        examples = [(words, adjective) for *words, adjective in examples if words[1] in NOUNS]
        assert len(examples) > enough
        for (determiner, word), adjective in examples:
            form = 2 * (determiner in ("les", "ces")) + NOUNS[word].feminine
            assert adjective in {each.french[form] for each in ADJECTIVES}, (determiner, word, adjective)
    for subject, form in (("il", 0), ("elle", 1)):
        said = re.findall(rf" {subject} {predicate}", french)
        assert len(said) > 10 and set(said) <= {each.french[form] for each in ADJECTIVES}


def test_participles_agree_with_the_subject_after_etre(french):
    etre = "(?:arrivé|parti|tombé|allé|venu|entré)"
    for subject, ending in (("il", ""), ("elle", "e")):
        endings = re.findall(rf" {subject} (?:n' )?est {ADVERB}{etre}(\w*) ", french)
        assert len(endings) > 10 and set(endings) == {ending}
    assert set(re.findall(rf" sont {ADVERB}{etre}(\w*) ", french)) == {"s", "es"}
    assert not found(rf" (suis|sommes|a|ai|avons|ont) {ADVERB}{etre}(e|s|es)? ", french)


def test_participles_agree_with_an_object_that_goes_before_and_with_none_behind(french):
    participles = [verb.participle for verb in english_french._TRANSITIVES + english_french._GIVING]
    group = rf"(?:n' )?(?:a|ai|avons) {ADVERB}({'|'.join(participles)})(\w*) "
    seen = Counter()
    for owned, word, _, ending in re.findall(rf" (de )?\w+ (\w+) qu[e'] (?:il|elle|j'|nous) {group}", french):
        if not owned and word in NOUNS and word not in ("héros", "souris"):
            noun = NOUNS[word]
            assert ending == "e" * noun.feminine + "s" * (word == noun.french[1]), word
            seen[ending] += 1
    assert set(seen) == {"", "e", "s", "es"}
    behind = re.findall(rf"(?:, |, et |, mais |quand )(?:il|elle|j'|nous) {group}", french)
    assert len(behind) > 20 and {ending for _, ending in behind} == {""}


def test_an_aspirated_h_is_no_vowel():
    phrase = [("le", (0,)), ("hibou", (1,)), ("de", (2,)), ("le", (3,)), ("homme", (4,))]
    words = [word for word, _ in english_french._elide_and_contract(phrase)]
    assert words == ["le", "hibou", "de", "l'", "homme"]
    phrase = [("de", (0,)), ("le", (1,)), ("héros", (2,)), ("à", (3,)), ("les", (4,)), ("hommes", (5,))]
    assert english_french._elide_and_contract(phrase) == [
        ("du", (0, 1)),
        ("héros", (2,)),
        ("aux", (3, 4)),
        ("hommes", (5,)),
    ]
