"""One record of a shard: a block of whole documents as four npy members of a tar file.

    KEY.tokens.npy      uint16 or uint32, (T,)  token ids of all documents, one after the other
    KEY.sentences.npy   int32, (S,)             end of each sentence in tokens, increasing, last = T
    KEY.documents.npy   int32, (D,)             end of each document in sentences, increasing, last = S
    KEY.wordstarts.npy  uint8, (ceil(T / 8),)   np.packbits of one bit a token: it begins a word

Nothing here ever unpickles, and member names are compared, never used as paths.
"""

import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

TAR_BLOCK = 512  # bytes; tar headers and padding come in these
END_OF_ARCHIVE = b"\0" * (2 * TAR_BLOCK)
MEMBERS = ("tokens", "sentences", "documents", "wordstarts")


class RecordError(Exception):
    """The bytes of a record are not what the format says; the caller adds which file they came from."""


@dataclass(frozen=True)
class Block:
    """The documents of one record. T tokens, S sentences, D documents."""

    tokens: np.ndarray  # (T,) uint16 or uint32
    sentences: np.ndarray  # (S,) int32, end offsets in tokens
    documents: np.ndarray  # (D,) int32, end offsets in sentences
    word_starts: np.ndarray  # (T,) bool


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Return one block with the documents of all ``blocks``, in order."""
    if len(blocks) == 1:
        return blocks[0]
    before_tokens = np.cumsum([0] + [len(block.tokens) for block in blocks])
    before_sentences = np.cumsum([0] + [len(block.sentences) for block in blocks])
    return Block(
        tokens=np.concatenate([block.tokens for block in blocks]),
        sentences=np.concatenate([b.sentences + n for b, n in zip(blocks, before_tokens, strict=False)]),
        documents=np.concatenate([b.documents + n for b, n in zip(blocks, before_sentences, strict=False)]),
        word_starts=np.concatenate([block.word_starts for block in blocks]),
    )


def encode_record(key: str, block: Block) -> bytes:
    """Return the tar members of a record; the same block always gives the same bytes."""
    arrays = (
        block.tokens,
        block.sentences.astype(np.int32),
        block.documents.astype(np.int32),
        np.packbits(block.word_starts.astype(bool)),
    )
    parts = []
    for member, array in zip(MEMBERS, arrays, strict=True):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        data = buffer.getvalue()
        parts += [_header(f"{key}.{member}.npy", len(data)), data, b"\0" * (-len(data) % TAR_BLOCK)]
    return b"".join(parts)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)  # owner 0, time 0: bytes depend on the content alone
    info.size = size
    info.mode = 0o644
    return info.tobuf(format=tarfile.USTAR_FORMAT)


def tar_members(data: bytes) -> Iterator[tuple[str, memoryview]]:
    """Yield (name, content) of consecutive regular tar members; raise RecordError on anything else."""
    view = memoryview(data)
    at = 0
    while at < len(data):
        if at + TAR_BLOCK > len(data):
            raise RecordError("a tar header is cut short")
        try:
            info = tarfile.TarInfo.frombuf(bytes(view[at : at + TAR_BLOCK]), "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise RecordError(f"no tar header where one belongs ({error})") from None
        if not info.isreg():
            raise RecordError(f"member {info.name!r} is not a plain file")
        if info.size < 0:
            raise RecordError(f"member {info.name!r} has a negative size")
        begin = at + TAR_BLOCK
        if begin + info.size > len(data):
            raise RecordError(f"member {info.name!r} is cut short")
        yield info.name, view[begin : begin + info.size]
        at = begin + info.size + (-info.size % TAR_BLOCK)


def decode_record(data: bytes) -> tuple[str, Block]:
    """Return (key, block) of a record's bytes; raise RecordError if they do not follow the format."""
    arrays: dict[str, np.ndarray] = {}
    keys = set()
    for name, content in tar_members(data):
        key, _, member = name.partition(".")
        member = member.removesuffix(".npy")
        if member not in MEMBERS or not name.endswith(".npy"):
            raise RecordError(f"unexpected member {name!r}")
        if member in arrays:
            raise RecordError(f"member {name!r} does not belong here: records are interleaved")
        keys.add(key)
        try:
            arrays[member] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError, SyntaxError, MemoryError, OSError) as error:
            raise RecordError(f"member {name!r} is not a plain npy array ({error})") from None
    if len(keys) != 1:
        raise RecordError(f"members of several records are interleaved: {', '.join(sorted(keys)[:3])}")
    missing = [member for member in MEMBERS if member not in arrays]
    if missing:
        raise RecordError(f"record {keys.pop()!r} lacks {', '.join(missing)}")
    return keys.pop(), _checked_block(*(arrays[member] for member in MEMBERS))


def _checked_block(
    tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray, bits: np.ndarray
) -> Block:
    expected = {"tokens": (tokens, "u"), "sentences": (sentences, "iu"), "documents": (documents, "iu")}
    for name, (array, kinds) in expected.items():
        if array.ndim != 1 or array.dtype.kind not in kinds or not len(array):
            raise RecordError(f"{name} holds {array.dtype} of shape {array.shape}, not a row of integers")
    if bits.dtype != np.uint8 or bits.shape != (-(-len(tokens) // 8),):
        raise RecordError("wordstarts does not fit tokens")
    for name, ends, last in (
        ("sentences", sentences, len(tokens)),
        ("documents", documents, len(sentences)),
    ):
        if ends[0] <= 0 or ends[-1] != last or (np.diff(ends.astype(np.int64)) <= 0).any():
            raise RecordError(f"{name} is not an increasing list of end offsets up to {last}")
    return Block(tokens, sentences, documents, np.unpackbits(bits, count=len(tokens)).astype(bool))
