"""Parallel text: every line is a pair or is reported, and no chapter of the Bible is on both sides of a split."""

import gzip
import io
import lzma
import re
import zipfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyattention.tasks import parallel_text
from whyattention.tasks.parallel_text import Verse, bible, fra_eng, join_neighbours, read_parallel, split_by_chapter

LINES = "Go.\tVa !\tCC-BY 2.0 (France)\r\nThe water sleeps.\tL'eau dort.\n"
PAIRS = [("Go.", "Va !"), ("The water sleeps.", "L'eau dort.")]


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("suffix", "pack"), [(".txt", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_file_may_be_packed_and_may_come_from_windows(tmp_path, suffix, pack, bom):
    path = tmp_path / f"fra{suffix}"
    path.write_bytes(pack(bom + LINES.encode()))
    for given_as in (path, str(path)):
        text = read_parallel(given_as)
        assert text.pairs == PAIRS and text.rejected == []


def test_what_cannot_be_used_is_reported_with_its_number_and_the_reason(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_bytes(b"a\tb\n\nno tab\n\tb\na\t \n\xe9t\xe9\tsummer\n \t \n c \t d \te\nno\xe2\x80\xa8tab\n\0e\tf")
    text = read_parallel(path)
    assert text.pairs == [("a", "b"), ("c", "d")]
    assert text.rejected == [
        (2, "empty"),
        (3, "no tab"),
        (4, "column 1 empty"),
        (5, "column 2 empty"),
        (6, "not UTF-8"),
        (7, "empty"),
        (9, "no tab"),
        (10, "NUL in it"),
    ]
    assert str(text).splitlines()[:3] == [
        "2 pairs, 8 lines rejected",
        "  2 x empty: line 2, 7",
        "  2 x no tab: line 3, 9",
    ]


@given(st.binary(max_size=60))
def test_no_line_is_dropped_silently(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(b"a\tb\n" + content)
    text = read_parallel(path)
    assert len(text.pairs) + len(text.rejected) == 1 + len(content.splitlines())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 pairs, 0 lines rejected"),
        (b"one column\nonly\n", "2 x no tab: line 1, 2"),
        (LINES.encode("utf-16-le"), "4 x NUL in it"),
    ],
)
def test_a_file_without_a_pair_is_an_error(tmp_path, content, reason):
    path = tmp_path / "text.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?s){re.escape(str(path))} has no line.*{reason}"):
        read_parallel(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_file_in_another_encoding_is_named(tmp_path, encoding):
    path = tmp_path / "text.tsv"
    path.write_bytes(f"\ufeff{LINES}".encode(encoding))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} is in UTF-16 or UTF-32.*UTF-8 is expected"):
        read_parallel(path)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: b"text\t" + content])
def test_a_broken_packed_file_is_named(tmp_path, suffix, pack, damage):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(damage(pack(LINES.encode())))
    with pytest.raises(ValueError, match=f"is not a whole {suffix} file"):
        read_parallel(path)


def test_a_file_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_parallel(tmp_path / "text.tsv")


def test_the_archive_of_sentences_is_read_from_inside(tmp_path, monkeypatch):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("fra-eng/_about.txt", "about")
        archive.writestr("fra-eng/fra.txt", LINES)
    (tmp_path / "fra-eng.zip").write_bytes(packed.getvalue())
    monkeypatch.setattr(parallel_text, "fetch", lambda file: tmp_path / file.filename)
    assert fra_eng().pairs == PAIRS


# The Bible


@pytest.fixture(scope="module")
def verses():
    try:
        return bible()
    except ConnectionError as error:
        pytest.skip(f"needs the Bible: {error}")


def test_every_verse_has_both_languages(verses):
    assert len(verses) == 31_102 and len({(v.book, v.chapter, v.verse) for v in verses}) == 31_102
    assert all(v.english and v.french for v in verses)
    assert verses[0].english == "In the beginning God created the heaven and the earth."
    assert verses[0].french == "Au commencement, Dieu créa les cieux et la terre."
    lengths = Counter(min((len(v.english.split()) - 1) // 10, 6) for v in verses)
    assert [lengths[bucket] for bucket in range(7)] == [1381, 10_814, 9984, 5750, 2335, 689, 149]


def test_no_number_and_no_marked_title_is_left_in_the_text(verses):
    for verse in verses:
        for text in (verse.english, verse.french):
            assert not re.search(r"\d|  ", text) and text == text.strip()
    by_place = {(v.book, v.chapter, v.verse): v.french for v in verses}
    assert by_place[19, 3, 1] == "O Éternel, que mes ennemis sont nombreux! Quelle multitude se lève contre moi!"
    assert by_place[41, 9, 50].endswith("avec quoi l'assaisonnerez-vous? Ayez du sel en vous-mêmes, et soyez en paix "
                                        "les uns avec les autres.")  # fmt: skip


def test_a_chapter_is_in_one_part_of_the_split_and_no_english_verse_in_two(verses):
    split = split_by_chapter(verses)
    chapters = [{(v.book, v.chapter) for v in part} for part in split]
    assert not (chapters[0] & chapters[1] or chapters[0] & chapters[2] or chapters[1] & chapters[2])
    assert len(set().union(*chapters)) == 1189
    held_out = {v.english for v in split.validation + split.test}
    assert not held_out & {v.english for v in split.training}
    assert [len(part) for part in split] == [28_904, 534, 1560]
    assert split_by_chapter(reversed(verses)).test == split.test[::-1]


def verse(book, chapter, number, words):
    return Verse(book, chapter, number, " ".join(["word"] * words), f"mot{number}")


def test_neighbours_are_joined_up_to_a_length_and_not_across_chapters_or_gaps():
    verses = [
        *[verse(1, 1, 1, 4), verse(1, 1, 2, 4), verse(1, 1, 3, 4), verse(1, 1, 5, 3), verse(1, 1, 6, 20)],
        *[verse(1, 2, 1, 2), verse(1, 2, 2, 2), verse(1, 2, 3, 2), verse(2, 2, 4, 2)],
    ]
    joined = join_neighbours(verses, 10)
    assert [(v.book, v.chapter, v.verse, len(v.english.split()), v.french) for v in joined] == [
        (1, 1, 1, 8, "mot1 mot2"),
        (1, 1, 3, 4, "mot3"),
        (1, 1, 5, 3, "mot5"),
        (1, 1, 6, 20, "mot6"),
        (1, 2, 1, 6, "mot1 mot2 mot3"),
        (2, 2, 4, 2, "mot4"),
    ]
    assert join_neighbours(verses, 1) == verses and join_neighbours([], 10) == []


def test_joining_fills_the_long_buckets_and_loses_no_word(verses):
    test = split_by_chapter(verses).test
    joined = join_neighbours(test, 60)
    assert " ".join(v.french for v in joined) == " ".join(v.french for v in test)
    assert sum(50 < len(v.english.split()) <= 60 for v in joined) > 300
