"""From the markup of docstrings and manuals to paragraphs of plain prose.

Technical text is full of what is no language: doctests, code, signatures, parameter tables, rules of
dashes. A small model that is trained on it learns the layout. So text is first cut into paragraphs by its
layout, then its inline markup is taken off, and last only paragraphs that read like English stay.
"""

import re
from collections.abc import Iterator


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


# The most frequent words of English that are not content words: prose has them, tables and code have not.
STOP_WORDS = _listed(
    "a about after all also an and any are as at be because been before being between but by can cannot could"
    " do does done each either else even every for from had has have how if in into is it its itself just may"
    " might more most must no nor not of on once one only or other otherwise out over own rather same shall"
    " should since so some such than that the their them then there therefore these they this those though"
    " through thus to too under until up upon use used very was we were what when where whether which while"
    " who whose why will with within without would yet you your"
)
MIN_WORDS = 9
MIN_STOP_SHARE = 0.28  # running text has 0.4 and more
MAX_ODD_SHARE = 0.12  # words that are identifiers, numbers or symbols

_DIRECTIVE = re.compile(r"\.\. *([\w:-]+)::(?!\S) *(.*)$")
_PROSE_DIRECTIVES = _listed("note warning tip important hint caution attention seealso deprecated")
_FENCE = re.compile(r"(```|~~~)")
_RULE = re.compile(r"([-=~^*#_+.\"'`])\1{2,}\s*$")
_ITEM = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
_FIELD = re.compile(r":[\w *.,]+:(\s|$)")  # ":param x: ..." and other field lists
_HEADING = re.compile(r"#{1,6} ")
_CONSOLE = re.compile(r"(>>>|\.\.\. |\$ |%|In \[\d|Out\[\d|\|)")
_SECTIONS = _listed(
    "args arguments parameters params returns return raises raise yields yield examples example attributes"
    " attribute keyword attrs inputs input outputs output shape shapes usage references reference methods"
    " signature"
)
_SECTION = re.compile(r"(?:\W*)([A-Za-z]+)(?: arguments?| args?| parameters?| values?)?\W*$")

_ROLE = re.compile(r":(?:[a-z]+:){1,2}`~?([^`<]*?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_MARKDOWN_LINK = re.compile(r"!?\[([^\][]*)\]\([^()]*\)")
_CITATION = re.compile(r"\s?\[(?:\d{1,2}\]_?|[#*\w.+: -]{1,24}\]_)(?=[\s.,;:)]|$)")
_URL = re.compile(r"<?(?:https?|ftp|file)://\S+|\bwww\.\S+|\S+@\w+\.\w+")  # or a mail address
_LITERAL = re.compile(r"(`{1,2})([^`]+)\1_{0,2}")
_QUOTED = re.compile(r"``|''|`")
_STRONG = re.compile(r"(?<![\w*])(\*{1,3})(\S(?:[^*]*\S)?)\1(?![\w*])")
_UNDERLINED = re.compile(r"(?<!\w)_([A-Za-z][^_]*)_(?!\w)")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,80}>")
_SPACES = re.compile(r"\s+")
_BEFORE_MARK = re.compile(r" +([,.;:!?)]+(?:\s|$))")
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z])")

_PLAIN = re.compile(r"[(\[\"'“‘]*[A-Za-z]+(?:['’-][A-Za-z]+)*[)\]\"'”’.,;:!?]*$")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z][a-z]+[A-Z]")
_START = re.compile(r"[\"'“‘(]?[A-Z]")
_END = re.compile(r"[.!?][\"'”’)]*$")
_BOILERPLATE = re.compile(
    "licen[sc]e|copyright|warrant|redistribut|all rights reserved|autodoc|auto-generated|do not edit"
    "|automatically generated|permission is hereby|liable|merchantab|superclass documentation|todo:|fixme|xxx"
)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of ``text`` that are English prose, each on one line, markup taken off."""
    long_enough = (block for block in blocks(text) if block.count(" ") >= MIN_WORDS - 1)
    cleaned = (strip_markup(block) for block in long_enough)
    return [paragraph for paragraph in cleaned if is_prose(paragraph)]


def blocks(text: str) -> Iterator[str]:
    """Cut text by its layout: paragraphs and list items, without code, doctests, tables, parameter lists.

    A literal block is what is indented more than a line that ends in ``::``, or than a directive that holds
    no prose; a doctest or console line drops the lines up to the next blank one; a section of parameters
    (numpy's and Google's style) is dropped with all that belongs to it.
    """
    lines = text.expandtabs().splitlines()
    block: list[str] = []
    block_indent = 0
    skip_over: int | None = None  # lines indented more than this are dropped
    skip_to_blank = fenced = False
    section_indent: int | None = None  # inside a section that holds no prose
    for number, raw in enumerate(lines):
        line = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FENCE.match(line):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        if not line:
            skip_to_blank = False
            yield from _joined(block)
            block = []
            continue
        if skip_over is not None:
            if indent > skip_over:
                continue
            skip_over = None
        underlined = bool(_RULE.match(following)) and len(following) >= 3
        if section_indent is not None and (underlined or _ends_section(line, indent, section_indent)):
            section_indent = None
        if _opens_section(line, underlined):
            section_indent = indent if not underlined else -1
        directive = _DIRECTIVE.match(line)
        if directive:
            yield from _joined(block)
            block = []
            if directive.group(1).lower() not in _PROSE_DIRECTIVES:
                skip_over = indent
                continue
            line = directive.group(2)
        if section_indent is not None or skip_to_blank or not line:
            continue
        if _CONSOLE.match(line):
            skip_to_blank = True
            yield from _joined(block)
            block = []
            continue
        if underlined or _RULE.match(line) or _FIELD.match(line) or _HEADING.match(line):
            yield from _joined(block)
            block = []
            if _FIELD.match(line):
                skip_over = indent
            continue
        item = _ITEM.match(line)
        if item or (block and indent > block_indent + 3 and not _ITEM.match(block[0])):
            yield from _joined(block)
            block = []
        if not block:
            block_indent = indent
        if line.endswith("::"):
            skip_over = indent
            line = line[:-2].rstrip() + ":"
        block.append(line[item.end() :] if item else line)
    yield from _joined(block)


def _opens_section(line: str, underlined: bool) -> bool:
    match = _SECTION.match(line)
    if not match or match.group(1).lower() not in _SECTIONS:
        return False
    return underlined or line.rstrip("*` ").endswith(":")


def _ends_section(line: str, indent: int, section_indent: int) -> bool:
    """A Google section ends where the text is indented as its title again; a numpy one at the next title."""
    return section_indent >= 0 and indent <= section_indent


def _joined(block: list[str]) -> Iterator[str]:
    if block:
        yield " ".join(block)


def strip_markup(text: str) -> str:
    """Take reStructuredText and Markdown off a paragraph: roles, links, emphasis, literals, URLs, tags."""
    if "`" in text:
        text = _ROLE.sub(lambda match: match.group(1).rsplit(".", 1)[-1].lstrip("!"), text)
        text = _LINK.sub(r"\1", text)
    if "[" in text:
        text = _MARKDOWN_LINK.sub(r"\1", text)
    if ("//" in text or "www." in text or "@" in text) and _URL.search(
        text
    ):  # a sentence without its address is a torso
        text = " ".join(part for part in _BETWEEN_SENTENCES.split(text) if not _URL.search(part))
    if "`" in text or "''" in text:
        text = _QUOTED.sub("", _LITERAL.sub(r"\2", text))
    if "*" in text:
        text = _STRONG.sub(r"\2", text)
    if "_" in text:
        text = _UNDERLINED.sub(r"\1", text)
    if "[" in text:
        text = _CITATION.sub("", text)
    if "<" in text:
        text = _TAG.sub("", text)
    text = _SPACES.sub(" ", text).strip()
    return _BEFORE_MARK.sub(r"\1", text)


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph reads like English sentences: it begins and ends like one, has enough words, among
    them the usual share of stop words, and few identifiers, numbers and symbols; no boilerplate.
    """
    if not _START.match(paragraph) or not _END.search(paragraph, max(0, len(paragraph) - 8)):
        return False
    words = paragraph.split()
    if len(words) < MIN_WORDS or _BOILERPLATE.search(paragraph.lower()):
        return False
    if not paragraph.isascii() and _foreign_share(paragraph) > 0.02:
        return False
    odd = sum(not (word.isalpha() and word.islower()) and _is_odd(word) for word in words)
    if odd > MAX_ODD_SHARE * len(words):
        return False
    stop = sum(word.strip("()[]\"'“”‘’.,;:!?").lower() in STOP_WORDS for word in words)
    return stop >= MIN_STOP_SHARE * len(words)


def _is_odd(word: str) -> bool:
    return not _PLAIN.match(word) or bool(_CAMEL.search(word))


def _foreign_share(text: str) -> float:
    """Share of letters outside Latin-1."""
    return sum(character > "\u00ff" for character in text) / len(text)
