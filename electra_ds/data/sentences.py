"""Where sentences end.

Line breaks always end a sentence. The rule adds sentence punctuation inside a line, so that text with a
paragraph on a line is cut too. It is meant to be cheap and right most of the time for scripts with and
without capitals: examples are built from sentences, but nothing breaks where one is cut wrongly.
"""

import re

# A sentence mark with what closes it, then white space; or a full-width mark, which needs no space after it.
_CANDIDATE = re.compile(r"[.!?…؟۔।॥።]+[\"'”’»)\]]*\s+(?=\S)|[。！？｡]+[」』”’）】]*\s*(?=\S)")
_OPENING = "\"'“‘«([¿¡—–-"
_LAST_WORD = re.compile(r"([^\s(\[\"“‘]+)\.$")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt gov sen rep no nos vol vols fig figs eq sec"
        " ch pp p ed eds vs cf al etc e.g i.e viz approx ca inc ltd co corp dept univ"
        " jan feb mar apr jun jul aug sep sept oct nov dec bzw z.b d.h u.a usw nr bd hrsg mme mlle sra dra",
    )
)


def split_sentences(line: str) -> list[str]:
    """Cut a line at its sentence ends; what is returned, joined, is the line without the white space
    between.
    """
    sentences = []
    begin = 0
    for match in _CANDIDATE.finditer(line):
        if _ends_sentence(line, match):
            sentences.append(line[begin : match.end()].strip())
            begin = match.end()
    sentences.append(line[begin:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(line: str, match: re.Match[str]) -> bool:
    mark = match.group().rstrip()
    following = line[match.end() : match.end() + 4].lstrip(_OPENING)[:1]
    if following.islower():  # a sentence does not begin in lower case, whatever stood before it
        return False
    if mark != ".":
        return True
    word = _LAST_WORD.search(line[max(0, match.start() - 40) : match.start() + 1])
    if word is None:
        return True
    last = word.group(1)
    initial = len(last) == 1 and last.isupper()  # "J. Smith"
    dotted = "." in last and all(len(part) <= 1 for part in last.split("."))  # "U.S."
    return not (initial or dotted or last.lower() in _ABBREVIATIONS)
