"""A small English-French language: sentence pairs of any wanted length, with their word alignment, made by a grammar.

It has what makes translation more than copying: articles, adjectives and participles agree in gender and number, most
adjectives move behind the noun and some do not, English says in two words what French says in one and the other way
round, negation embraces the verb, possessors change sides, words contract ("du", "aux") and elide ("l'", "qu'").

Every English sentence has one French translation. What English would leave open is left out: "you", "it" and "they",
the simple past (the present is "présent", the present perfect "passé composé", the future "futur simple"), nouns of
either gender, an indefinite object under negation. A relative clause that agrees with its noun stands where only one
noun can be meant, and only phrases without possessors, and verbs without clauses after them, are joined by "and".
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, NamedTuple

Link = tuple[int, int]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, as words; an elided word ("l'") and a mark (",") are words of their own.

    `alignment` holds (target index, source index) for the words that translate each other. Every word of either side
    is in it. "ne" and "pas" belong to "not"; "does" and "will" belong to the French verb whose tense they give; an
    article contracted with its preposition, "du", to both "of" and "the"; the "le" and the "de" of "le chien du roi"
    to the "'s" of "the king's dog".
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    alignment: frozenset[Link]

    @property
    def source_text(self) -> str:
        return detokenise(self.source)

    @property
    def target_text(self) -> str:
        return detokenise(self.target)


def detokenise(words: Sequence[str]) -> str:
    """The words, English or French, as a text: ("l'", "eau", "dort", ".") is "L'eau dort."."""
    text = ""
    for word in words:
        joined = not text or text.endswith("'") or word in (",", ".", "'s")
        text += word if joined else " " + word
    return text[:1].upper() + text[1:]


def sentence_pairs(
    seed: int, count: int, *, shortest: int, longest: int, split: Literal["train", "test"] = "train"
) -> list[Pair]:
    """`count` pairs whose sources have `shortest` to `longest` words, the full stop counted, every length as often.

    The same from the same seed, and the first of them the same whatever `count` is. A hash of the source decides
    whether a pair is for training (four in five) or for testing, so that no seed brings a test sentence into training.
    Pairs may recur, which happens among the shortest. Raises ValueError unless 4 <= `shortest` <= `longest`, `count`
    is at least 0 and `split` is "train" or "test".
    """
    if not 4 <= shortest <= longest or count < 0 or split not in ("train", "test"):
        raise ValueError(
            f'needed: 4 <= shortest <= longest, count >= 0, split "train" or "test"; '
            f"got shortest={shortest}, longest={longest}, count={count}, split={split!r}"
        )
    writer = _Writer(random.Random(seed))
    pairs = []
    while len(pairs) < count:
        length = shortest + writer.below(longest - shortest + 1)
        pair = writer.sentence(length)
        while _split(pair.source) != split:
            pair = writer.sentence(length)
        pairs.append(pair)
    return pairs


def _split(source: Iterable[str]) -> str:
    return "test" if blake2b(" ".join(source).encode(), digest_size=1).digest()[0] % 5 == 0 else "train"


# ---- The lexicon ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Noun:
    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool
    kind: str
    places: frozenset[str]  # where a place can be: one is "in" a garden, "on" a bridge, "by" either, goes "to" a school


def _nouns(table: str) -> Iterator[_Noun]:
    for line in table.strip().splitlines():
        singular, plural, singulier, pluriel, gender, kind, *places = line.split()
        yield _Noun((singular, plural), (singulier, pluriel), gender == "f", kind, frozenset(places))


# No noun here has two translations, two genders in French, or one form for both numbers in English. The kinds say
# what a noun can do, have done to it, and be like.
_NOUNS = tuple(
    _nouns("""
man men homme hommes m person
woman women femme femmes f person
king kings roi rois m person
queen queens reine reines f person
prince princes prince princes m person
princess princesses princesse princesses f person
hero heroes héros héros m person
actor actors acteur acteurs m person
actress actresses actrice actrices f person
witch witches sorcière sorcières f person
boy boys garçon garçons m child
girl girls fille filles f child
uncle uncles oncle oncles m kin
aunt aunts tante tantes f kin
brother brothers frère frères m kin
sister sisters sœur sœurs f kin
cat cats chat chats m animal
dog dogs chien chiens m animal
horse horses cheval chevaux m animal
bird birds oiseau oiseaux m animal
donkey donkeys âne ânes m animal
elephant elephants éléphant éléphants m animal
owl owls hibou hiboux m animal
wolf wolves loup loups m animal
cow cows vache vaches f animal
mouse mice souris souris f animal
goat goats chèvre chèvres f animal
bee bees abeille abeilles f animal
egg eggs œuf œufs m food
cake cakes gâteau gâteaux m food
apple apples pomme pommes f food
orange oranges orange oranges f food
hat hats chapeau chapeaux m thing
coat coats manteau manteaux m thing
tool tools outil outils m thing
newspaper newspapers journal journaux m thing
dress dresses robe robes f thing
lamp lamps lampe lampes f thing
box boxes boîte boîtes f thing
key keys clé clés f thing
sword swords épée épées f thing
axe axes hache haches f thing
book books livre livres m text
letter letters lettre lettres f text
song songs chanson chansons f text
story stories histoire histoires f text
door doors porte portes f part
window windows fenêtre fenêtres f part
garden gardens jardin jardins m place in
village villages village villages m place in
hotel hotels hôtel hôtels m place in by to
castle castles château châteaux m place in by to
hospital hospitals hôpital hôpitaux m place in by to
museum museums musée musées m place in by to
house houses maison maisons f place in by
church churches église églises f place in by to
school schools école écoles f place in by to
kitchen kitchens cuisine cuisines f place in
street streets rue rues f place in
tree trees arbre arbres m site by under
bridge bridges pont ponts m site on under by
roof roofs toit toits m site on
table tables table tables f site on under
island islands île îles f site on
forest forests forêt forêts f site in
""")
)


class _Adjective(NamedTuple):
    english: str
    french: tuple[str, str, str, str]  # masculine, feminine, masculine plural, feminine plural


def _adjectives(table: str) -> dict[str, _Adjective]:
    entries = [line.split() for line in table.strip().splitlines()]
    return {english: _Adjective(english, tuple(forms)) for english, *forms in entries}


_ADJECTIVES = _adjectives("""
small petit petite petits petites
large grand grande grands grandes
tall grand grande grands grandes
beautiful beau belle beaux belles
handsome beau belle beaux belles
pretty joli jolie jolis jolies
old vieux vieille vieux vieilles
young jeune jeune jeunes jeunes
new nouveau nouvelle nouveaux nouvelles
good bon bonne bons bonnes
long long longue longs longues
happy heureux heureuse heureux heureuses
sad triste triste tristes tristes
tired fatigué fatiguée fatigués fatiguées
intelligent intelligent intelligente intelligents intelligentes
curious curieux curieuse curieux curieuses
jealous jaloux jalouse jaloux jalouses
proud fier fière fiers fières
famous célèbre célèbre célèbres célèbres
honest honnête honnête honnêtes honnêtes
sick malade malade malades malades
black noir noire noirs noires
white blanc blanche blancs blanches
red rouge rouge rouges rouges
green vert verte verts vertes
blue bleu bleue bleus bleues
grey gris grise gris grises
heavy lourd lourde lourds lourdes
expensive cher chère chers chères
dirty sale sale sales sales
useful utile utile utiles utiles
empty vide vide vides vides
magic magique magique magiques magiques
""")
_ALONE = _Adjective("alone", ("seul", "seule", "seuls", "seules"))

_MIND = "happy sad tired intelligent curious jealous proud famous honest sick"
# By the kind of noun: adjectives that stand before it in French, those that stand behind it, and those it can be said
# to be. A combination with a meaning of its own is left out: "belle-sœur", "vieux garçon", "grand homme".
_BEFORE = {
    "person": "small young old handsome beautiful",
    "child": "small young handsome beautiful",
    "kin": "young old",
    "animal": "small young old beautiful pretty",
    "food": "small good beautiful",
    "thing": "small large old new beautiful pretty good",
    "text": "old new beautiful good long",
    "part": "small large old new beautiful",
    "place": "small large old new beautiful pretty",
    "site": "small large old beautiful pretty",
}
_BEHIND = {
    "person": _MIND,
    "child": _MIND,
    "kin": _MIND,
    "animal": "black white grey happy sad tired intelligent curious sick",
    "food": "red green white expensive",
    "thing": "black white red green blue grey heavy expensive dirty useful magic",
    "text": "sad famous useful magic",
    "part": "white red green blue heavy dirty",
    "place": "white grey empty famous dirty",
    "site": "black white green grey",
}
_SAID = {
    "person": _MIND + " small tall young old",
    "child": _MIND + " small tall",
    "kin": _MIND + " small tall young old",
    "animal": _BEHIND["animal"] + " small young old beautiful",
    "food": _BEHIND["food"] + " beautiful",
    "thing": _BEHIND["thing"] + " large small old beautiful",
    "text": _BEHIND["text"] + " old long beautiful",
    "part": _BEHIND["part"] + " large small old beautiful",
    "place": _BEHIND["place"] + " large small old beautiful",
    "site": _BEHIND["site"] + " large small old beautiful",
}
_BEFORE, _BEHIND, _SAID = (
    {kind: tuple(names.split()) for kind, names in table.items()} for table in (_BEFORE, _BEHIND, _SAID)
)
_PEOPLE = frozenset({"person", "child", "kin"})
_OWNED = frozenset({"kin", "animal", "food", "thing", "text"})
_NOT_BY_DEGREE = frozenset("black white red green blue grey magic new".split())
_WITH_MORE = frozenset("beautiful tired intelligent curious jealous famous honest expensive useful".split())


class _Determiner(NamedTuple):
    english: tuple[str, ...]
    masculine: tuple[str, ...]
    feminine: tuple[str, ...]
    plural: bool
    tags: frozenset[str]


def _determiners(table: str) -> Iterator[_Determiner]:
    for line in table.strip().splitlines():
        english, masculine, feminine, number, *tags = line.split()
        french = tuple(tuple(form.split("_")) for form in (masculine, feminine))
        yield _Determiner(tuple(english.split("_")), *french, number == "plural", frozenset(tags))


_DETERMINERS = tuple(
    _determiners("""
the le la singular definite
this ce cette singular definite
my mon ma singular definite owner
his son sa singular definite owner
her son sa singular definite owner
our notre notre singular definite owner
their leur leur singular definite owner
a un une singular
each chaque chaque singular each
the les les plural definite
these ces ces plural definite
my mes mes plural definite owner
his ses ses plural definite owner
her ses ses plural definite owner
our nos nos plural definite owner
their leurs leurs plural definite owner
some des des plural some
several plusieurs plusieurs plural
a_few quelques quelques plural
two deux deux plural
three trois trois plural
all_the tous_les toutes_les plural
""")
)


@dataclass(frozen=True, eq=False)
class _Verb:
    english: tuple[str, str, str]  # base, third person singular, past participle
    present: tuple[str, ...]  # je, il, nous, ils
    future: str  # the stem, which ends in r
    participle: str
    infinitive: str
    with_etre: bool = False
    particle: str = ""  # the English word between verb and object: "looks for"
    preposition: str = ""  # the French one: "obéit à"
    complement: str = ""  # the French noun that makes the verb: "a besoin de"
    subjects: tuple[_Noun, ...] = ()
    objects: tuple[_Noun, ...] = ()


def _of_kinds(kinds: str) -> tuple[_Noun, ...]:
    """The nouns of some kinds, or those that a "to" or the like is said of."""
    wanted = set(kinds.replace("people", "person child kin").replace("goods", "food thing text").split())
    return tuple(noun for noun in _NOUNS if noun.kind in wanted or noun.places & wanted)


def _verb(english, infinitive, subjects="", objects="", *, present="", future="", participle="", **more) -> _Verb:
    """A verb; what is not given of the French is that of a regular verb in -er."""
    stem = infinitive[:-2]
    regular = f"{stem}e {stem}e {stem}{'e' if stem.endswith('g') else ''}ons {stem}ent"
    return _Verb(
        tuple(english.split()),
        tuple((present or regular).split()),
        future or infinitive.removesuffix("e"),
        participle or stem + "é",
        infinitive,
        subjects=_of_kinds(subjects),
        objects=_of_kinds(objects),
        **more,
    )


_BE = _verb("be is been", "être", present="suis est sommes sont", future="ser", participle="été")
_HAVE = _verb("have has had", "avoir", present="ai a avons ont", future="aur", participle="eu")
_WANT = _verb("want wants wanted", "vouloir", present="veux veut voulons veulent")
_CAN = _verb("can can can", "pouvoir", present="peux peut pouvons peuvent")
_MUST = _verb("must must must", "devoir", present="dois doit devons doivent")

_LIVING, _ANY = "people animal", "people animal goods part place site"
_PARTIR = "pars part partons partent"
_ALONE_VERBS = (  # of what can be done alone, or with somebody
    _verb("sing sings sung", "chanter", "people"),
    _verb("work works worked", "travailler", "people"),
    _verb("travel travels travelled", "voyager", "people"),
    _verb("swim swims swum", "nager", _LIVING),
    _verb("play plays played", "jouer", _LIVING),
    _verb("arrive arrives arrived", "arriver", _LIVING, with_etre=True),
    _verb("leave leaves left", "partir", _LIVING, present=_PARTIR, participle="parti", with_etre=True),
)
_OTHER_INTRANSITIVES = (
    _verb(
        "sleep sleeps slept",
        "dormir",
        _LIVING,
        present="dors dort dormons dorment",
        future="dormir",
        participle="dormi",
    ),
    _verb("laugh laughs laughed", "rire", "people", present="ris rit rions rient", participle="ri"),
    _verb("hesitate hesitates hesitated", "hésiter", "people"),
    _verb("fall falls fallen", "tomber", _LIVING, with_etre=True),
)
_TRANSITIVES = (
    _verb("see sees seen", "voir", _LIVING, _ANY, present="vois voit voyons voient", future="verr", participle="vu"),
    _verb("love loves loved", "aimer", "people", "people animal text place"),
    _verb("hate hates hated", "détester", "people", "people animal text place"),
    _verb("find finds found", "trouver", _LIVING, "animal food thing"),
    _verb("hide hides hidden", "cacher", "people", "food thing"),
    _verb(
        "buy buys bought", "acheter", "people", "food thing",
        present="achète achète achetons achètent", future="achèter",
    ),
    _verb("lose loses lost", "perdre", "people", "thing", present="perds perd perdons perdent", participle="perdu"),
    _verb("eat eats eaten", "manger", _LIVING, "food"),
    _verb("open opens opened", "ouvrir", "people", "part", present="ouvre ouvre ouvrons ouvrent", participle="ouvert"),
    _verb("close closes closed", "fermer", "people", "part"),
    _verb(
        "write writes written", "écrire", "people", "text",
        present="écris écrit écrivons écrivent", participle="écrit",
    ),
    _verb(
        "follow follows followed", "suivre", _LIVING, _LIVING,
        present="suis suit suivons suivent", participle="suivi",
    ),
    _verb("protect protects protected", "protéger", _LIVING, _LIVING, present="protège protège protégeons protègent"),
    _verb("help helps helped", "aider", "people", "people"),
    _verb("invite invites invited", "inviter", "people", "people"),
    _verb("look looks looked", "chercher", _LIVING, "people animal thing", particle="for"),
    _verb("look looks looked", "regarder", _LIVING, _ANY, particle="at"),
    _verb("listen listens listened", "écouter", "people", "people", particle="to"),
    _verb(
        "wait waits waited", "attendre", "people", _LIVING, particle="for",
        present="attends attend attendons attendent", participle="attendu",
    ),
)  # fmt: skip
_GIVING = (
    _verb("give gives given", "donner", "people", "goods"),
    _verb("show shows shown", "montrer", "people", "goods"),
    _verb("send sends sent", "envoyer", "people", "goods", present="envoie envoie envoyons envoient", future="enverr"),
)
_GO = _verb(
    "go goes gone", "aller", _LIVING, "to", particle="to", preposition="à", with_etre=True,
    present="vais va allons vont", future="ir",
)  # fmt: skip
_PREPOSITIONAL = (
    _GO,
    _verb(
        "come comes come", "venir", _LIVING, "place", particle="from", preposition="de", with_etre=True,
        present="viens vient venons viennent", future="viendr", participle="venu",
    ),
    _verb("enter enters entered", "entrer", _LIVING, "in", preposition="dans", with_etre=True),
    _verb(
        "obey obeys obeyed", "obéir", "people", "people", preposition="à",
        present="obéis obéit obéissons obéissent", participle="obéi",
    ),
    _verb(
        "answer answers answered", "répondre", "people", "people", preposition="à",
        present="réponds répond répondons répondent", participle="répondu",
    ),
    _verb("speak speaks spoken", "parler", "people", "people", particle="to", preposition="à"),
    _verb("speak speaks spoken", "parler", "people", _ANY, particle="about", preposition="de"),
    _verb("dream dreams dreamt", "rêver", "people", "animal goods part place site", particle="about", preposition="de"),
    replace(
        _HAVE, english=("need", "needs", "needed"), complement="besoin", preposition="de",
        subjects=_of_kinds(_LIVING), objects=_of_kinds("people food thing"),
    ),
    replace(
        _HAVE, english=("be", "is", "been"), complement="peur", particle="of", preposition="de",
        subjects=_of_kinds(_LIVING), objects=_of_kinds(_LIVING),
    ),
)  # fmt: skip
_CLAUSAL = (
    _verb("say says said", "dire", "people", present="dis dit disons disent"),
    _verb("know knows known", "savoir", "people", present="sais sait savons savent"),
    _verb("believe believes believed", "croire", "people", present="crois croit croyons croient"),
    _verb("hope hopes hoped", "espérer", "people", present="espère espère espérons espèrent"),
)
_ADVERBS = (("often", "souvent"), ("always", "toujours"), ("sometimes", "parfois"), ("rarely", "rarement"))
_ALREADY = ("already", "déjà")
_NEGATIONS = {"not": "pas", "never": "jamais"}

# (English, French, what can be so located)
_LOCATIONS = (
    ("in", "dans", _of_kinds("in")),
    ("on", "sur", _of_kinds("on")),
    ("under", "sous", _of_kinds("under")),
    ("behind", "derrière", _of_kinds("by")),
    ("in front of", "devant", _of_kinds("by")),
    ("near", "près de", _of_kinds("by")),
)

Tense = Literal["present", "perfect", "future"]
_TENSES: tuple[Tense, ...] = ("present", "present", "present", "present", "perfect", "perfect", "future", "future")

# By the tense of the first clause: (English, French, the tense that the second must have).
_COORDINATING = ((", and", ", et", None), (", but", ", mais", None))
_BECAUSE = ("because", "parce que", None)
_CONNECTIVES = {
    "present": (*_COORDINATING, _BECAUSE, ("when", "quand", "present"), ("as soon as", "dès que", "present")),
    "perfect": (*_COORDINATING, _BECAUSE),
    "future": (*_COORDINATING, _BECAUSE, ("if", "si", "present")),
}
_OPENINGS = {
    "present": (("today ,", "aujourd'hui ,"), ("now ,", "maintenant ,"), ("in winter ,", "en hiver ,")),
    "perfect": (("today ,", "aujourd'hui ,"),),
    "future": (("tomorrow ,", "demain ,"), ("in winter ,", "en hiver ,"), ("in summer ,", "en été ,")),
}

# ---- The French of neighbouring words -------------------------------------------------------------------------------

_WITH_ASPIRATED_H = frozenset({"hibou", "hiboux", "héros", "hache", "haches"})
_ELIDED = frozenset({"le", "la", "de", "que", "ne", "je"})
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son", "beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}

Phrase = list[tuple[str, tuple[int, ...]]]  # French words, each with the indices of the English words that it renders


@cache
def _sounds_like_vowel(word: str) -> bool:
    return word[0] in "aeiouyàâéèêëîïôöûùœ" or (word[0] == "h" and word not in _WITH_ASPIRATED_H)


def _elide_and_contract(phrase: Phrase) -> Phrase:
    """le + ami is l' + ami; de + le is du, but de + l' stays."""
    result: Phrase = []
    for position, (word, links) in enumerate(phrase):
        following = phrase[position + 1][0] if position + 1 < len(phrase) else "."
        if (word in _ELIDED and _sounds_like_vowel(following)) or (word, following) == ("si", "il"):
            word = word[:-1] + "'"
        if result and (result[-1][0], word) in _CONTRACTED:
            before, links_before = result.pop()
            word, links = _CONTRACTED[before, word], links_before + links
        result.append((word, links))
    return result


def _before_vowels(phrase: Phrase) -> Phrase:
    """The forms that a singular noun phrase's words take: ce + vieux + âne is ce + vieil + âne."""
    words = [word for word, _ in phrase]
    changed = [
        _BEFORE_VOWEL.get(word, word) if _sounds_like_vowel(following) else word for word, following in pairwise(words)
    ]
    return [(word, links) for word, (_, links) in zip([*changed, words[-1]], phrase, strict=True)]


# ---- The grammar ----------------------------------------------------------------------------------------------------


class _Agreement(NamedTuple):
    """What a verb, an adjective or a participle agrees with."""

    person: int
    feminine: bool
    plural: bool

    def of(self, adjective: _Adjective) -> str:
        return adjective.french[2 * self.plural + self.feminine]

    def ending(self, participle: str) -> str:
        return participle + "e" * self.feminine + "s" * self.plural

    def conjugated(self, forms: Sequence[str]) -> str:
        return forms[2 * self.plural + (self.person == 3)]


_PRONOUNS = (
    ("I", "je", _Agreement(1, False, False)),
    ("we", "nous", _Agreement(1, False, True)),
    ("he", "il", _Agreement(3, False, False)),
    ("she", "elle", _Agreement(3, True, False)),
)
_FUTURE = ("ai", "a", "ons", "ont")

# What the place of a noun phrase in the sentence forbids its determiner: nothing; all but definite ones, under
# negation; "some" after "de", and in a subject, where it might as well be "certains"; "each" besides in a coordination.
Limit = Literal["any", "definite", "not some", "joined"]
_WEIGHTS = {("the",): 8, ("a",): 5, ("this",): 2, ("these",): 2, ("some",): 4}


def _choices(plural: bool, owned: bool, limit: Limit) -> tuple[_Determiner, ...]:
    def allowed(tags):
        if limit == "definite":
            return "definite" in tags
        return limit == "any" or not ("some" in tags or (limit == "joined" and "each" in tags))

    return tuple(
        determiner
        for determiner in _DETERMINERS
        if determiner.plural == plural and (owned or "owner" not in determiner.tags) and allowed(determiner.tags)
        for _ in range(_WEIGHTS.get(determiner.english, 1))
    )


_CHOICES = {
    (plural, owned, limit): _choices(plural, owned, limit)
    for plural in (False, True)
    for owned in (False, True)
    for limit in ("any", "definite", "not some", "joined")
}
_VERBS = _ALONE_VERBS + _OTHER_INTRANSITIVES + _TRANSITIVES * 2 + _GIVING + _PREPOSITIONAL
_VERBS_OF = {noun: tuple(verb for verb in _VERBS if noun in verb.subjects) for noun in _NOUNS}
_VERBS_ON = {noun: tuple(verb for verb in _TRANSITIVES + _GIVING if noun in verb.objects) for noun in _NOUNS}
_KIND = {noun.kind: _of_kinds(noun.kind) for noun in _NOUNS}
_PERSONS, _LIVING_NOUNS, _BUILDINGS = _of_kinds("people"), _of_kinds(_LIVING), _of_kinds("to")

# Which relative clauses may follow a noun: any; where another noun could be meant, only "where", which agrees with
# nothing; or none.
Relative = Literal["any", "where", "none"]


class _Draft:
    """One clause in the making. What is said in English goes to `source`; the French of it is what a method returns."""

    def __init__(self, chance: Callable[[], float], tense: Tense, depth: int):
        self._random = chance
        self._depth = depth  # inside how many clauses that which is being said stands
        self.source: list[str] = []
        self.target = self.clause(tense)

    def say(self, words: str) -> tuple[int, ...]:
        start = len(self.source)
        self.source += words.split()
        return tuple(range(start, len(self.source)))

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, options):
        return options[int(self._random() * len(options))]

    # Clauses

    def clause(self, tense: Tense) -> Phrase:
        if tense == "present" and self._depth < 2 and self.chance(0.07):
            return self.report()
        negation = self.negation()
        if self.chance(0.2):
            subject, agreement, noun = self.subject(_NOUNS, negation, gendered=True)
            return subject + self.quality(agreement, noun, tense, negation)
        verb = self.pick(_VERBS)
        subject, agreement, noun = self.subject(verb.subjects, negation, gendered=_agrees_with_subject(verb, tense))
        # Inside another clause, a second verb might be meant to be that clause's.
        if self._depth == 0 and not negation and self.chance(0.12):
            second = self.pick(_VERBS_OF[noun])
            if agreement.person == 3 or not _agrees_with_subject(second, tense):
                first = self.predicate(agreement, verb, tense, "", flat=True)
                joint = [("et", self.say("and"))]
                return subject + first + joint + self.predicate(agreement, second, tense, "")
        return subject + self.predicate(agreement, verb, tense, negation)

    def report(self) -> Phrase:
        """ "the king says that ..." """
        subject, agreement, _ = self.subject(_PERSONS, "", gendered=False)
        french = subject + self.verb_group(agreement, self.pick(_CLAUSAL), "present", "")
        return [*french, ("que", self.say("that")), *self.inner(lambda: self.clause(self.pick(_TENSES)))]

    def inner(self, part: Callable[[], Phrase]) -> Phrase:
        self._depth += 1
        french = part()
        self._depth -= 1
        return french

    def negation(self) -> str:
        return "not" if self.chance(0.17) else "never" if self.chance(0.05) else ""

    def subject(self, nouns, negation: str, gendered: bool, relative: Relative = "any"):
        """(French, what the verb agrees with, one of the nouns). "I" and "we" are said only where no gender shows."""
        noun = self.pick(nouns)
        if noun.kind in _PEOPLE and self.chance(0.25):
            english, french, agreement = self.pick(_PRONOUNS[2:] if gendered else _PRONOUNS)
            return [(french, self.say(english))], agreement, noun
        if self.chance(0.12):
            return *self.joined(noun, "and", "et", negation), noun
        return *self.noun_phrase(noun, "definite" if negation else "not some", relative), noun

    # Predicates

    def quality(self, agreement: _Agreement, noun: _Noun, tense: Tense, negation: str) -> Phrase:
        """ "is very old", "is as old as ...", "is more famous than ..." """
        french = self.verb_group(agreement, _BE, tense, negation)
        adjective = _ADJECTIVES[self.pick(_SAID[noun.kind])]
        degrees = adjective.english not in _NOT_BY_DEGREE
        if degrees and self.chance(0.2):
            french.append(("très", self.say("very")))
        elif degrees and self.chance(0.2):
            more = adjective.english in _WITH_MORE and self.chance(0.6)
            english, second = ("more", "than") if more else ("as", "as")
            french.append(("plus" if more else "aussi", self.say(english)))
            french.append((agreement.of(adjective), self.say(adjective.english)))
            french.append(("que", self.say(second)))
            return french + self.noun_phrase(self.pick(_KIND[noun.kind]), "definite", "any")[0]
        return [*french, (agreement.of(adjective), self.say(adjective.english))]

    def predicate(
        self,
        agreement: _Agreement,
        verb: _Verb,
        tense: Tense,
        negation: str,
        *,
        antecedent: _Agreement | None = None,
        flat: bool = False,
    ) -> Phrase:
        """A verb and what belongs to it. Its direct object is the `antecedent` if there is one; `flat`: no clauses."""
        modal = None
        if tense == "present" and not verb.complement and self.chance(0.1):
            modal = self.pick((_WANT, _CAN, _MUST))
        french = self.verb_group(agreement, verb, tense, negation, modal, antecedent)
        limit: Limit = "definite" if negation or verb is _GO else "any"
        relative: Relative = "none" if flat else "any"
        if verb in _GIVING:
            if antecedent is None:
                french += self.noun_phrase(self.pick(verb.objects), limit, "none")[0]
            recipient = [("à", self.say("to"))]
            return french + recipient + self.noun_phrase(self.pick(_PERSONS), limit, relative)[0]
        if verb.objects and antecedent is None:
            noun = self.pick(verb.objects)
            if verb.preposition == "de" and limit == "any":
                limit = "not some"
            if not (verb.preposition or negation or flat) and self.chance(0.12):
                french += self.joined(noun, *self.pick((("and", "et"), ("or", "ou"))), negation)[0]
            else:
                french += self.noun_phrase(noun, limit, relative)[0]
        return french + self.circumstance(agreement, verb, negation, flat)

    def circumstance(self, agreement: _Agreement, verb: _Verb, negation: str, flat: bool) -> Phrase:
        """Where, with whom, or alone; mostly nothing."""
        if verb in _ALONE_VERBS and self.chance(0.2):
            if agreement.person == 3 and self.chance(0.4):
                return [(agreement.of(_ALONE), self.say("alone"))]
            company = [("avec", self.say("with"))]
            limit: Limit = "definite" if negation else "any"
            return company + self.noun_phrase(self.pick(_LIVING_NOUNS), limit, "none" if flat else "any")[0]
        if verb.with_etre or verb.preposition or not self.chance(0.15 if verb.objects else 0.35):
            return []
        english, french, places = self.pick(_LOCATIONS)
        links = self.say(english)
        phrase = [(word, links) for word in french.split()]
        relative: Relative = "none" if flat else "where" if verb.objects else "any"
        return phrase + self.noun_phrase(self.pick(places), "definite" if negation else "not some", relative)[0]

    def verb_group(
        self,
        agreement: _Agreement,
        verb: _Verb,
        tense: Tense,
        negation: str,
        modal: _Verb | None = None,
        antecedent: _Agreement | None = None,
    ) -> Phrase:
        """The verb with its auxiliaries, its negation or an adverb, and the little words that are part of it."""
        between = ""
        if negation:
            between = _NEGATIONS[negation]
        elif verb not in _CLAUSAL and self.chance(0.12):  # "croit rarement que" would ask for the subjunctive
            negation, between = self.pick((*_ADVERBS, _ALREADY) if tense == "perfect" else _ADVERBS)
        middle, auxiliary, main, inner = self.english_verb(agreement, verb, tense, negation, modal)
        particle: tuple[int, ...] = ()
        if verb.particle and not verb.preposition:
            particle = self.say(verb.particle)
        if modal:
            inner += particle
        else:
            main += particle

        ne = [("ne", middle)] if between in _NEGATIONS.values() else []
        adverb = [(between, middle)] if between else []
        if tense == "future":
            french = [*ne, (verb.future + agreement.conjugated(_FUTURE), auxiliary + main), *adverb]
        elif tense == "perfect":
            helper = _BE if verb.with_etre else _HAVE
            agrees_with = agreement if verb.with_etre else antecedent
            participle = agrees_with.ending(verb.participle) if agrees_with else verb.participle
            french = [*ne, (agreement.conjugated(helper.present), auxiliary), *adverb, (participle, main)]
        else:
            french = [*ne, (agreement.conjugated((modal or verb).present), auxiliary + main), *adverb]
            french += [(verb.infinitive, inner)] if modal else []

        if verb.complement:
            french.append((verb.complement, self.say("afraid") if verb.particle else main))
        if verb.preposition:
            french.append((verb.preposition, self.say(verb.particle) if verb.particle else inner or main))
        return french

    def english_verb(self, agreement: _Agreement, verb: _Verb, tense: Tense, middle: str, modal: _Verb | None):
        """Says it; the indices of (negation or adverb, auxiliary, main verb or modal, infinitive), () for none."""
        base, third, participle = (modal or verb).english
        singular = agreement.person == 3 and not agreement.plural
        between: tuple[int, ...] = ()
        auxiliary: tuple[int, ...] = ()
        if tense != "present":
            auxiliary = self.say("will" if tense == "future" else "has" if singular else "have")
            between = self.say(middle)
            return between, auxiliary, self.say(base if tense == "future" else participle), ()
        if modal is _CAN and middle == "not":
            between = main = self.say("cannot")
        elif modal in (_CAN, _MUST) or base == "be":
            form = third if singular or base != "be" else "am" if agreement == _PRONOUNS[0][2] else "are"
            main = self.say(form)
            between = self.say(middle)
        elif middle == "not":
            auxiliary, between, main = self.say("does" if singular else "do"), self.say(middle), self.say(base)
        else:
            between = self.say(middle)
            main = self.say(third if singular else base)
        inner: tuple[int, ...] = ()
        if modal:
            inner = self.say(f"to {verb.english[0]}" if modal is _WANT else verb.english[0])
        return between, auxiliary, main, inner

    # Noun phrases

    def joined(self, noun: _Noun, english: str, french: str, negation: str) -> tuple[Phrase, _Agreement]:
        """Two nouns of a kind with "and" or "or"."""
        limit: Limit = "definite" if negation else "joined"
        others = [other for other in _KIND[noun.kind] if other is not noun]
        first, first_agreement = self.noun_phrase(noun, limit, "none", simple=True)
        joint = [(french, self.say(english))]
        second, second_agreement = self.noun_phrase(self.pick(others), limit, "none", simple=True)
        agreement = _Agreement(3, first_agreement.feminine and second_agreement.feminine, True)
        return first + joint + second, agreement

    def noun_phrase(
        self, noun: _Noun, limit: Limit, relative: Relative, simple: bool = False
    ) -> tuple[Phrase, _Agreement]:
        plural = self.chance(0.35)
        agreement = _Agreement(3, noun.feminine, plural)
        owned = noun.kind in _OWNED
        if owned and not simple and self.chance(0.08):
            french = self.possessed(noun, agreement)
        else:
            determiner = self.pick(_CHOICES[plural, owned, limit])
            links = self.say(" ".join(determiner.english))
            before, rest = self.described(noun, agreement)
            words = determiner.feminine if noun.feminine else determiner.masculine
            if "some" in determiner.tags and before:
                words = ("de",)
            if determiner.english == ("a",) and _takes_an(self.source[links[0] + 1]):
                self.source[links[0]] = "an"
            each = [links[:1], links[1:]] if len(words) == 2 else [links]
            french = list(zip(words, each, strict=True)) + before + rest
        if not plural:
            french = _before_vowels(french)
        if noun.kind == "part" and not simple and self.chance(0.3):
            whole = [("de", self.say("of"))]
            return french + whole + self.noun_phrase(self.pick(_BUILDINGS), "definite", "none")[0], agreement
        if relative != "none" and self._depth < 2 and self.chance(0.16):
            french += self.inner(lambda: self.relative(noun, agreement, relative))
        return french, agreement

    def possessed(self, noun: _Noun, agreement: _Agreement) -> Phrase:
        """ "the king 's old dog": le vieux chien de le roi."""
        owner = self.pick(_PERSONS)
        determiner = self.pick(_CHOICES[False, owner.kind in _OWNED, "definite"])
        links = self.say(" ".join(determiner.english))
        before, rest = self.described(owner, _Agreement(3, owner.feminine, False))
        words = determiner.feminine if owner.feminine else determiner.masculine
        possessor = _before_vowels([(words[0], links), *before, *rest])
        own = self.say("'s")
        before, rest = self.described(noun, agreement)
        article = "les" if agreement.plural else "la" if noun.feminine else "le"
        return [(article, own), *before, *rest, ("de", own), *possessor]

    def described(self, noun: _Noun, agreement: _Agreement) -> tuple[Phrase, Phrase]:
        """(the French adjective before the noun, the noun and the adjective behind it)."""
        before: Phrase = []
        behind: Phrase = []
        if self.chance(0.25):
            name = self.pick(_BEFORE[noun.kind])
            while name == ("handsome" if noun.feminine else "beautiful") and noun.kind in _PEOPLE:
                name = self.pick(_BEFORE[noun.kind])
            before = self.adjective(name, agreement)
        if self.chance(0.2):
            behind = self.adjective(self.pick(_BEHIND[noun.kind]), agreement)
        word = (noun.french[agreement.plural], self.say(noun.english[agreement.plural]))
        return before, [word, *behind]

    def adjective(self, name: str, agreement: _Agreement) -> Phrase:
        very = [("très", self.say("very"))] if name not in _NOT_BY_DEGREE and self.chance(0.12) else []
        return [*very, (agreement.of(_ADJECTIVES[name]), self.say(name))]

    def relative(self, noun: _Noun, antecedent: _Agreement, allowed: Relative) -> Phrase:
        tense = self.pick(_TENSES)
        if "in" in noun.places and (allowed == "where" or self.chance(0.5)):
            return [("où", self.say("where")), *self.clause(tense)]
        if allowed == "where":
            return []
        negation = self.negation()
        person = noun.kind in _PEOPLE
        if _VERBS_ON[noun] and self.chance(0.45):
            verb = self.pick(_VERBS_ON[noun])
            pronoun = [("que", self.say("whom" if person else "that"))]
            subject, agreement, _ = self.subject(verb.subjects, negation, gendered=False, relative="none")
            return pronoun + subject + self.predicate(agreement, verb, tense, negation, antecedent=antecedent)
        pronoun = [("qui", self.say("who" if person else "that"))]
        if _VERBS_OF[noun] and self.chance(0.75):
            return pronoun + self.predicate(antecedent, self.pick(_VERBS_OF[noun]), tense, negation)
        return pronoun + self.quality(antecedent, noun, tense, negation)


def _agrees_with_subject(verb: _Verb, tense: Tense) -> bool:
    return verb.with_etre and tense == "perfect"


def _takes_an(word: str) -> bool:
    return (word[0] in "aeiou" and word != "useful") or word == "honest"


class _Writer:
    """Makes sentences of a wanted length out of clauses of whatever length they come in."""

    LAST = 13  # a clause that has to fill a sentence exactly is at most so long
    SHORTEST = 3

    def __init__(self, generator: random.Random):
        self._random = generator.random
        # Clauses of other lengths than the one that was wanted wait here until theirs is: few are wasted, and among
        # clauses of one tense, depth and length all are as likely as the grammar makes them.
        self._waiting: dict[tuple[Tense, int, int], deque[_Draft]] = defaultdict(deque)

    def below(self, end: int) -> int:
        return int(self._random() * end)

    def _pick(self, options):
        return options[self.below(len(options))]

    def sentence(self, length: int) -> Pair:
        """Clauses and what connects them, `length` words with the full stop."""
        source: list[str] = []
        target: Phrase = []

        def add(english: Sequence[str], french: Phrase) -> None:
            offset = len(source)
            source.extend(english)
            target.extend((word, tuple(offset + link for link in links)) for word, links in french)

        remaining = length - 1
        depth = 0
        tense: Tense = self._pick(_TENSES)
        if remaining >= 8 and self._random() < 0.1:
            opening = self._pick(_OPENINGS[tense])
            add(*_fixed(*opening))
            remaining = length - 1 - len(source)
        while remaining > self.LAST:
            clause = self._clause_up_to(remaining - 3 - self.SHORTEST, tense, depth)
            add(clause.source, clause.target)
            # What depends on a clause that depends on another would be hard to read.
            english, french, wanted = connective = self._pick(_COORDINATING if depth else _CONNECTIVES[tense])
            depth = int(connective not in _COORDINATING)
            add(*_fixed(english, french))
            tense = wanted or self._pick(_TENSES)
            remaining = length - 1 - len(source)
        clause = self._clause_of(remaining, tense, depth)
        add(clause.source, clause.target)
        add(["."], [(".", (0,))])
        words = _elide_and_contract(target)
        alignment = frozenset((position, link) for position, (_, links) in enumerate(words) for link in links)
        return Pair(tuple(source), tuple(word for word, _ in words), alignment)

    def _clause_up_to(self, longest: int, tense: Tense, depth: int) -> _Draft:
        while len((draft := _Draft(self._random, tense, depth)).source) > longest:
            self._set_aside(draft, tense, depth)
        return draft

    def _clause_of(self, length: int, tense: Tense, depth: int) -> _Draft:
        waiting = self._waiting[tense, depth, length]
        while not waiting:
            self._set_aside(_Draft(self._random, tense, depth), tense, depth)
        return waiting.popleft()

    def _set_aside(self, draft: _Draft, tense: Tense, depth: int) -> None:
        if len(draft.source) <= self.LAST:
            self._waiting[tense, depth, len(draft.source)].append(draft)


def _fixed(english: str, french: str) -> tuple[list[str], Phrase]:
    """Words that go together; where they are as many in French, each is linked to the one in its place."""
    source, target = english.split(), french.split()
    if len(source) == len(target):
        return source, [(word, (position,)) for position, word in enumerate(target)]
    return source, [(word, tuple(range(len(source)))) for word in target]


# ---- The whole vocabulary -------------------------------------------------------------------------------------------


def _fixed_words(side: int) -> set[str]:
    """Those of one language, 0 or 1, that tables hold as they are said."""
    tables = (*_ADVERBS, _ALREADY, *_LOCATIONS, *_PRONOUNS, *_NEGATIONS.items())
    tables += tuple(entry for table in (*_CONNECTIVES.values(), *_OPENINGS.values()) for entry in table)
    return {word for entry in tables for word in entry[side].split()}


def _source_words() -> tuple[str, ...]:
    words = _fixed_words(0) | set("an and or with alone to that who whom where as more than very of 's .".split())
    words |= set("am is are been be do does has have will cannot afraid".split())
    words |= {word for noun in _NOUNS for word in noun.english} | set(_ADJECTIVES)
    words |= {word for determiner in _DETERMINERS for word in determiner.english}
    for verb in (*_VERBS, _WANT, _CAN, _MUST):
        words |= {*verb.english[: 2 if verb in (_WANT, _CAN, _MUST) else 3], verb.particle} - {""}
    words |= {word for verb in _CLAUSAL for word in verb.english[:2]}
    return tuple(sorted(words))


def _agreements(nouns: Iterable[_Noun]) -> set[_Agreement]:
    """Those that a noun among `nouns` can ask for."""
    return {_Agreement(3, noun.feminine, plural) for noun in nouns for plural in (False, True)}


def _finite_forms(forms: Sequence[str], subjects: Iterable[_Noun]) -> set[str]:
    agreements = _agreements(subjects)
    if any(noun.kind in _PEOPLE for noun in subjects):
        agreements |= {agreement for _, _, agreement in _PRONOUNS}
    return {agreement.conjugated(forms) for agreement in agreements}


def _verb_forms(verb: _Verb) -> set[str]:
    words = _finite_forms(verb.present, verb.subjects) | {verb.participle, verb.complement or verb.infinitive}
    words |= _finite_forms([verb.future + ending for ending in _FUTURE], verb.subjects)
    agreeing = _agreements(verb.subjects if verb.with_etre else () if verb.preposition else verb.objects)
    words |= {agreement.ending(verb.participle) for agreement in agreeing}
    return words | ({verb.preposition} - {""})


def _target_words() -> tuple[str, ...]:
    words = _fixed_words(1) | set("et ou avec que qui où plus aussi très . ne du des au aux l' d' n' j' qu' s'".split())
    words |= {word for noun in _NOUNS for word in noun.french} | set(_ALONE.french)
    words |= {word for determiner in _DETERMINERS for word in (*determiner.masculine, *determiner.feminine)}
    for kind, nouns in _KIND.items():
        for name in {*_BEFORE[kind], *_BEHIND[kind], *_SAID[kind]}:
            words |= {agreement.of(_ADJECTIVES[name]) for agreement in _agreements(nouns)}
    words |= set(_BEFORE_VOWEL.values()) | {_BE.participle}
    # "je suis" and "nous sommes" would have to show a gender, so that only nouns, he and she are something.
    words |= {agreement.conjugated(_BE.present) for agreement in _agreements(_NOUNS)}
    words |= {_BE.future + agreement.conjugated(_FUTURE) for agreement in _agreements(_NOUNS)}
    for verb in (_HAVE, _WANT, _CAN, _MUST, *_CLAUSAL):
        words |= _finite_forms(verb.present, _PERSONS)
    return tuple(sorted(words.union(*map(_verb_forms, _VERBS))))


SOURCE_WORDS = _source_words()
TARGET_WORDS = _target_words()
