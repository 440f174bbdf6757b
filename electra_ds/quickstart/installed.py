"""English text that a Python installation carries: where it is found, and how it is got out of the files.

Docstrings and comments of the standard library and of every installed package, Python's documentation
topics, and the descriptions of packages. Nothing is imported: source files are parsed.
"""

import ast
import os
import re
import signal
import sysconfig
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from electra_ds.quickstart.prose import paragraphs

# The dependencies of this project come first, so that a crowded environment does not push them out.
FIRST_PACKAGES = ("transformers", "torch", "deepspeed", "numpy", "sympy", "networkx", "huggingface_hub")
MAX_SOURCE_BYTES = 256 << 20  # of all files together: bounds the time in an environment with everything in it
MAX_FILE_BYTES = 2 << 20  # larger ones are tables written by a program
_FILES_PER_TASK = 32

_LEFT_OUT = frozenset(
    ("test", "tests", "_test", "_tests", "testing", "lib2to3", "idlelib", "site-packages", "dist-packages")
)
_REPETITIVE = ("transformers/models", "pygments/lexers")  # much source, little prose, all of it alike
_COMMENTS = re.compile(r"^[ \t]*#[ \t].*(?:\n[ \t]*#.*)+", re.MULTILINE)
_COMMENT_MARK = re.compile(r"^[ \t]*#+ ?", re.MULTILINE)
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NESTING = (*_DEFINITIONS, ast.If, ast.Try, ast.With, ast.ExceptHandler)


@dataclass(frozen=True)
class Document:
    """A file's prose: its name, independent of where the installation lies, and its paragraphs."""

    name: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class SourceFile:
    """A file to read."""

    name: str
    path: Path


def find_files() -> list[SourceFile]:
    """Return the files that may hold prose, sorted by name, ``FIRST_PACKAGES`` before the others."""
    folders = sysconfig.get_paths()
    found: dict[str, Path] = {}
    for prefix, key in (("stdlib", "stdlib"), ("packages", "purelib"), ("packages", "platlib")):
        root = Path(folders[key])
        for path in _walk(root):
            found.setdefault(f"{prefix}/{path.relative_to(root).as_posix()}", path)
    ordered = sorted(found, key=lambda name: (_rank(name), name))
    files, total = [], 0
    for name in ordered:
        size = found[name].stat().st_size
        if size <= MAX_FILE_BYTES and total + size <= MAX_SOURCE_BYTES:
            files.append(SourceFile(name, found[name]))
            total += size
    return files


def _rank(name: str) -> int:
    top, package = name.split("/")[:2]
    if top == "stdlib":
        return 0
    return 1 + (FIRST_PACKAGES.index(package) if package in FIRST_PACKAGES else len(FIRST_PACKAGES))


def _walk(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        if folder.endswith(_REPETITIVE):
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if name not in _LEFT_OUT)
        for name in names:
            if name.endswith((".py", ".md", ".rst")) or name == "METADATA":
                path = Path(folder, name)
                if path.is_file():
                    yield path


def documents(files: list[SourceFile], processes: int) -> Iterator[tuple[Document, int]]:
    """Yield each file's document, in the order of ``files``, and how many files have been read so far.

    Files without prose give nothing. Python's documentation topics come first.
    """
    for topic in topics():
        yield topic, 0
    tasks = [files[begin : begin + _FILES_PER_TASK] for begin in range(0, len(files), _FILES_PER_TASK)]
    with ProcessPoolExecutor(processes, initializer=_ignore_interrupt) as pool:
        try:
            read = 0
            for task, results in zip(tasks, pool.map(_read_all, tasks), strict=True):
                read += len(task)
                for document in results:
                    yield document, read
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends the pool


def _read_all(files: list[SourceFile]) -> list[Document]:
    found = (Document(file.name, tuple(file_paragraphs(file.path))) for file in files)
    return [document for document in found if document.paragraphs]


def topics() -> list[Document]:
    """Return Python's documentation topics (of ``help("topic")``); none where they are not shipped."""
    try:
        from pydoc_data.topics import topics as texts
    except ImportError:
        return []
    return [Document(f"topics/{name}", tuple(paragraphs(texts[name]))) for name in sorted(texts)]


def file_paragraphs(path: Path) -> list[str]:
    """Return the paragraphs of prose in a file: docstrings, then comments; or the text of a description."""
    text = path.read_text(encoding="utf-8", errors="ignore")
    if path.name == "METADATA":
        text = text.partition("\n\n")[2]
    if path.suffix != ".py":
        return paragraphs(text)
    texts = [*docstrings(text), *comments(text)]
    return [paragraph for each in texts for paragraph in paragraphs(each)]


def docstrings(source: str) -> list[str]:
    """Return the docstrings of a module, its classes and functions, in order; none if it does not parse."""
    if '"""' not in source and "'''" not in source:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # written for another Python
    found: list[str] = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Module, *_DEFINITIONS)):
            found.append(ast.get_docstring(node) or "")
        inner = [
            child
            for block in ("body", "orelse", "handlers", "finalbody")
            for child in getattr(node, block, ())
            if isinstance(child, _NESTING)
        ]
        stack += reversed(inner)
    return [text for text in found if text]


def comments(source: str) -> list[str]:
    """Return the blocks of two comment lines or more, without their marks."""
    return [_COMMENT_MARK.sub("", block) for block in _COMMENTS.findall(source)]
