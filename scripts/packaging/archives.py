"""Archives whose bytes depend on their content only: sorted, one owner, one time, explicit modes."""

import gzip
import io
import tarfile
import time
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Folder:
    mode: int = 0o755
    owner: int = 0


def with_parents(tree):
    """The tree with each folder before what it contains."""
    whole = dict(tree)
    for path in tree:
        for at, letter in enumerate(path):
            if letter == "/":
                whole.setdefault(path[:at], Folder())
    return dict(sorted(whole.items()))


def tar(tree, epoch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in with_parents(tree).items():
            info = tarfile.TarInfo(path)
            info.mtime, info.mode = epoch, entry.mode
            if isinstance(entry, Folder):
                info.type, info.uid, info.gid = tarfile.DIRTYPE, entry.owner, entry.owner
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def gz(data):
    return gzip.compress(data, 9, mtime=0)


def zipped(files, epoch):
    """A zip file; times are in UTC, and no folder has an entry of its own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, file in files.items():
            info = zipfile.ZipInfo(path, time.gmtime(epoch)[:6])
            info.create_system, info.compress_type = 3, zipfile.ZIP_DEFLATED
            info.external_attr = (0o100000 | file.mode) << 16
            archive.writestr(info, file.data)
    return buffer.getvalue()
