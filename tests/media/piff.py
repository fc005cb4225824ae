"""Makes PIFF 1.1 of a fragmented MP4 under `cenc` or `cbc1`: the boxes of encryption become those that PIFF has for them. piff.py IN OUT"""

import sys

SENC = bytes.fromhex("a2394f525a9b4f14a2446c427c648df4")
TENC = bytes.fromhex("8974dbce7be74c5184f97148f9882554")
PARENTS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd", b"sinf", b"schi", b"moof", b"traf", b"mvex"}
ENTRIES = {b"encv": 78, b"enca": 28}


def boxes(data):
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big") or len(data) - at
        yield data[at + 4 : at + 8], data[at + 8 : at + size]
        at += size


def boxed(kind, content):
    return (8 + len(content)).to_bytes(4, "big") + kind + content


def changed(kind, content, cbc):
    if kind == b"schm":
        return boxed(kind, content[:4] + b"piff" + (0x10001).to_bytes(4, "big"))
    if kind == b"tenc":
        # Version and flags, then the algorithm: 1 for AES-CTR, 2 for AES-CBC.
        return boxed(b"uuid", TENC + content[:4] + (2 if cbc else 1).to_bytes(3, "big") + content[7:])
    if kind == b"senc":
        return boxed(b"uuid", SENC + content)
    if kind in (b"saiz", b"saio"):
        return boxed(b"free", content)
    skip = 8 if kind == b"stsd" else ENTRIES.get(kind, 0)
    if kind in PARENTS or kind in ENTRIES:
        inside = b"".join(changed(k, c, cbc) for k, c in boxes(content[skip:]))
        return boxed(kind, content[:skip] + inside)
    return boxed(kind, content)


def moved(moof, by):
    """The offsets of its runs count from its beginning, so they grow with it."""
    out = bytearray(moof)
    at = out.find(b"trun")
    while at >= 0:
        if out[at + 7] & 1:
            place = slice(at + 12, at + 16)
            out[place] = (int.from_bytes(out[place], "big", signed=True) + by).to_bytes(4, "big", signed=True)
        at = out.find(b"trun", at + 4)
    return bytes(out)


data = open(sys.argv[1], "rb").read()
cbc = b"cbc1" in data[:4096]
with open(sys.argv[2], "wb") as f:
    for kind, content in boxes(data):
        new = changed(kind, content, cbc)
        f.write(moved(new, len(new) - len(content) - 8) if kind == b"moof" else new)
