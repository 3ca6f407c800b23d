"""Writing: the shard file for the Python recorder, and small JSON files that are replaced whole.

What lives here: what `record/native/shard.h` does in C. Who may touch it: the recorder, inside training, so it needs the
standard library only. Invariant: disk blocks are reserved before they are mapped; trouble with the disk is an answer
(None, an errno), never an exception.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
from typing import Any

from . import schema as s

CHUNK_BYTES = 1 << 20  # mapped at once: Python's mmap keeps a descriptor for each


class Block:
    """One block: its words, and the same bytes as doubles and 32-bit integers."""

    __slots__ = ("buffer", "capacity", "doubles", "ints", "offset", "used", "words")

    def __init__(self, buffer: memoryview, offset: int, kind: int, ordinal: int, item_words: int) -> None:
        self.buffer = buffer
        self.words = buffer.cast("Q")
        self.doubles = buffer.cast("d")
        self.ints = buffer.cast("I")
        self.offset = offset
        room = len(buffer) - s.HEAD_WORDS * 8
        self.capacity = room // (item_words * 8) if item_words else room
        self.used = 0
        words = self.words
        words[s.HEAD_KIND] = kind | ordinal << 32
        words[s.HEAD_SIZE] = len(buffer) // s.BLOCK_BYTES | item_words << 32
        words[s.HEAD_CAPACITY] = self.capacity
        words[s.HEAD_MAGIC] = s.BLOCK_MAGIC

    def publish(self, items: int) -> None:
        self.used += items
        self.words[s.HEAD_USED] = self.used


class ShardWriter:
    """One process's shard. With `path` None, or when the disk refuses at the start, it lives in memory."""

    def __init__(self, path: str | None, limit: int) -> None:
        self.path = path
        self.limit = -(-limit // s.BLOCK_BYTES) * s.BLOCK_BYTES
        self.used = 0
        self.disk_errno = 0
        self.blocks: dict[int, list[Block]] = {kind: [] for kind in s.ITEM_WORDS}
        self.items = dict.fromkeys(s.ITEM_WORDS, 0)
        self._maps: list[mmap.mmap] = []
        self._chunk: memoryview | None = None
        self._chunk_at = 0
        self._site = (b"", 0)  # the last place kept, and where it is
        self.losses: memoryview | None = None
        header = self.block(s.HEADER)
        if header is None and path is not None:
            self.path = None  # go on in memory
            header = self.block(s.HEADER)
        if header is None:
            raise MemoryError("no memory for a shard")
        self.header = header
        self.losses = header.words[s.H_LOSSES : s.H_LOSSES + 64]
        header.words[s.H_BUDGET] = self.limit
        if self.disk_errno:
            self.lose("disk")
            header.words[s.H_DISK_ERRNO] = self.disk_errno

    def lose(self, why: str) -> None:
        if self.losses is not None:
            self.losses[s.LOSS_INDEX[why]] += 1

    def _map(self, offset: int, size: int) -> memoryview:
        if self.path is None:
            mapped = mmap.mmap(-1, size)
        else:
            flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            fd = os.open(self.path, flags | (os.O_CREAT | os.O_EXCL if offset == 0 else 0), 0o644)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, offset, size)
                else:
                    os.lseek(fd, offset, os.SEEK_SET)
                    if os.write(fd, bytes(size)) != size:
                        raise OSError(errno.ENOSPC, "disk full")
                mapped = mmap.mmap(fd, size, offset=offset)
            except BaseException:
                if offset == 0:
                    drop(self.path)
                raise
            finally:
                os.close(fd)
        self._maps.append(mapped)
        return memoryview(mapped)

    def _try_map(self, size: int) -> memoryview | None:
        try:
            return self._map(self.used, size)
        except (OSError, ValueError) as error:
            self.disk_errno = getattr(error, "errno", None) or errno.EIO
            return None

    def has_room(self, size: int) -> bool:
        """Is there room for so much more, in our budget and on the disk? For what can be left out: spans come first."""
        if self.limit - self.used < size:
            return False
        if self.path is None or not hasattr(os, "statvfs"):
            return True
        import resource  # POSIX only

        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if most != resource.RLIM_INFINITY and most < self.used + size:
            return False
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize >= size

    def block(self, kind: int, units: int = 1) -> Block | None:
        """A new zeroed block, or None when the budget or the disk is at its end (counted)."""
        size = units * s.BLOCK_BYTES
        if self.used + size > self.limit:
            self.lose("budget")
            return None
        if self._chunk is None or self._chunk_at + size > len(self._chunk):
            if self._chunk is not None and self._chunk_at < len(self._chunk):
                # Blocks lie one after the other in the file: what is left of the chunk becomes a block of strings.
                rest = self._chunk[self._chunk_at :]
                self._chunk = None
                self._add(s.STRINGS, rest, self.used)
                self.used += len(rest)
                return self.block(kind, units)
            chunk = min(max(CHUNK_BYTES, size), self.limit - self.used) if kind != s.HEADER else s.BLOCK_BYTES
            mapped = self._try_map(chunk) or self._try_map(size)
            if mapped is None:
                self.lose("disk")
                if self.losses is not None:
                    self.header.words[s.H_DISK_ERRNO] = self.disk_errno
                return None
            self._chunk, self._chunk_at = mapped, 0
        buffer = self._chunk[self._chunk_at : self._chunk_at + size]
        self._chunk_at += size
        block = self._add(kind, buffer, self.used)
        self.used += size
        return block

    def _add(self, kind: int, buffer: memoryview, offset: int) -> Block:
        block = Block(buffer, offset, kind, len(self.blocks[kind]), s.ITEM_WORDS[kind])
        self.blocks[kind].append(block)
        return block

    def item(self, kind: int) -> tuple[Block, int, int] | None:
        """Room for the next item: its block, the index of its first word there, and its number. Publish it when filled."""
        blocks = self.blocks[kind]
        if (not blocks or blocks[-1].used == blocks[-1].capacity) and self.block(kind) is None:
            return None
        block = blocks[-1]
        return block, s.HEAD_WORDS + block.used * s.ITEM_WORDS[kind], self.items[kind]

    def publish(self, kind: int) -> None:
        self.items[kind] += 1
        self.blocks[kind][-1].publish(1)

    def site(self, data: bytes) -> int:
        """As `string`; labels made in a loop come from one place, so the last one is remembered."""
        if self._site[0] != data or not self._site[1]:
            self._site = (data, self.string(data))
        return self._site[1]

    def string(self, data: bytes) -> int:
        """Keep a string; answers its byte offset in the file, or 0 when there is no room."""
        blocks = self.blocks[s.STRINGS]
        block = next((b for b in reversed(blocks) if b.capacity - b.used >= len(data)), None)
        if block is None:
            units = -(-(len(data) + s.HEAD_WORDS * 8) // s.BLOCK_BYTES)
            block = self.block(s.STRINGS, units)
            if block is None:
                return 0
        at = s.HEAD_WORDS * 8 + block.used
        block.buffer[at : at + len(data)] = data
        block.publish(len(data))
        return block.offset + at

    def snapshot(self) -> bytes:
        pieces = [memoryview(m) for m in self._maps]
        return b"".join(pieces)[: self.used]

    def forget(self) -> None:
        """In a forked child: drop the parent's blocks without writing to them."""
        self.losses = None
        self.blocks = {}


def write_json(path: str, data: Any, indent: int | None = 1) -> None:
    """Replace a JSON file in one step: a reader sees the old or the new one, never half."""
    text = json.dumps(data, indent=indent, ensure_ascii=True, allow_nan=False)
    draft = f"{path}.{os.getpid()}.part"
    try:
        with open(draft, "wb") as file:  # bytes: writing text is what the recorder watches
            file.write(text.encode() + b"\n")
        os.replace(draft, path)
    except BaseException:
        drop(draft)
        raise


def drop(path: str | None) -> None:
    """Delete a file of ours if it can be."""
    try:
        if path is not None:
            os.unlink(path)
    except OSError:
        pass
