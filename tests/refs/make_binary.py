"""Arrays that NumPy wrote, for tests/test_data_binary.c and the seeds of the fuzz targets.

usage: make_binary.py   (needs NumPy; writes binary/ beside itself)

Byte k of an image array in C order is (k * 37 + 11) % 251, so the test knows what to expect. dtypes.txt
says what NumPy itself makes of every array of dtypes.npz in single precision.
"""
import gzip
import io
import os
import struct
import warnings
import zipfile

import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "binary")
IDX = os.path.join(OUT, "idx")


def path(name):
    return os.path.join(OUT, name)


def pixels(*shape):
    k = np.arange(int(np.prod(shape)))
    return ((k * 37 + 11) % 251).astype(np.uint8).reshape(shape)


def fortran(a):
    return np.asfortranarray(a)


def dtypes():
    """Every number type in both byte orders and both memory orders, with extreme values."""
    arrays, lines = {"y": np.array([2, 0, 1])}, []
    for t in "u1 i1 b1 u2 i2 f2 u4 i4 f4 u8 i8 f8".split():
        kind = t[0]
        a = np.arange(12).reshape(3, 4) % 7
        if kind == "f":
            a = (a - 2.75) * 1.2345
        a = a.astype(t)
        if kind in "ui":
            a[0, 0], a[2, 3] = np.iinfo(t).min, np.iinfo(t).max
        elif t == "f8":
            a[0, 0], a[2, 3] = 1e-300, -1e38
        elif kind == "f":
            a[0, 0], a[2, 3] = np.finfo(t).smallest_subnormal, np.finfo(t).max
        for endian in "<>":
            for order in "CF":
                key = "%s_%s_%s" % (t, "le" if endian == "<" else "be", order)
                arrays[key] = np.array(a.astype(endian + t), order=order)
        lines.append(t + " " + " ".join(float(v).hex() for v in a.astype(np.float32).flatten()))
    np.savez(path("dtypes.npz"), **arrays)
    with open(path("dtypes.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")


def arrays():
    """Images in every order, labels of every kind, and things that must be refused."""
    nan = np.ones((3, 4), np.float32)
    nan[1, 2] = np.nan
    inf = fortran(np.ones((3, 4)))
    inf[2, 1] = -np.inf
    many = np.arange(12.0).reshape(3, 4)
    np.savez(path("arrays.npz"),
             hwc=pixels(3, 5, 4, 3), chw=pixels(3, 3, 5, 4), chw_f=fortran(pixels(3, 3, 5, 4)),
             hwc_f=fortran(pixels(3, 5, 4, 3)), hw1=pixels(3, 5, 4, 1), both=pixels(3, 3, 5, 3),
             grey=pixels(3, 5, 4), neither=pixels(3, 5, 4, 2), rows=many, big=many * 1e300,
             nan=nan, inf=inf, cube=np.ones((3, 2, 2)), line=np.ones(3), none=np.ones((0, 4)),
             narrow=np.ones((3, 0)),
             y=np.array([2, 0, 1]), y_column=np.array([[2], [0], [1]], np.uint8),
             y_whole=np.array([2.0, 0.0, 1.0]), y_part=np.array([2, 0.5, 1]),
             y_sign=np.array([1, -1, 1], np.int8), y_bool=np.array([True, False, True]),
             y_far=np.array([2**63 - 1, -2**63, 5]), y_huge=np.array([0, 1, 2**63], np.uint64),
             y_short=np.array([0, 1]), y_real=np.array([0.5, -1.25, 3], np.float32),
             g=np.array([7, 7, -3], np.int16))


def plain():
    x = pixels(3, 4)
    for major in 1, 2, 3:
        with open(path("v%d.npy" % major), "wb") as f:
            np.lib.format.write_array(f, x, version=(major, 0))
    np.save(path("y.npy"), np.array([2, 0, 1]))
    np.save(path("g.npy"), np.array([1, 0, 1], np.uint8))
    with gzip.GzipFile(path("v1.npy.gz"), "wb", mtime=0) as f:
        np.save(f, x)


def archives():
    sets = dict(x_train=pixels(4, 5, 4, 3), y_train=np.array([3, 1, 3, 1]),
                x_test=pixels(2, 5, 4, 3), y_test=np.array([2, 3]))
    np.savez_compressed(path("deflated.npz"), **sets)
    np.savez(path("images.npz"), train_images=pixels(4, 5, 4), train_labels=np.array([[3], [1], [3], [1]]),
             test_images=pixels(2, 5, 4), test_labels=np.array([[1], [3]]))
    limit = zipfile.ZIP64_LIMIT
    zipfile.ZIP64_LIMIT = 10  # everything is "large"
    np.savez(path("zip64.npz"), **sets)
    zipfile.ZIP64_LIMIT = limit
    blob = io.BytesIO()
    np.savez(blob, x=pixels(3, 4), y=np.array([0, 1, 0]))
    good = blob.getvalue()
    assert good.count(b"PK\x01\x02") == 2
    first = good.index(b"PK\x01\x02")
    second = good.index(b"PK\x01\x02", first + 4)

    def damaged(name, at, new):
        with open(path("bad_%s.npz" % name), "wb") as f:
            f.write(good[:at] + new + good[at + len(new):])

    damaged("crc", first - 1, b"\x01")
    damaged("overlap", second + 42, struct.pack("<I", 0))  # local header of the other: another name
    damaged("size", first + 20, struct.pack("<II", 2**31, 2**31))
    damaged("encrypted", first + 8, b"\x01")
    with warnings.catch_warnings(), zipfile.ZipFile(path("bad_twice.npz"), "w") as z:
        warnings.simplefilter("ignore")
        for name in "x.npy", "y.npy", "x.npy":
            blob = io.BytesIO()
            np.save(blob, np.ones((2, 2)) if name == "x.npy" else np.arange(2))
            z.writestr(zipfile.ZipInfo(name), blob.getvalue())
    # Two entries with the same bytes: the second lies inside the first.
    inner = good[:first]
    local = struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, 0, 0, 0, 0x21, 0, len(inner), len(inner), 5, 0)
    outer = local + b"o.npy" + inner

    def central(name, offset, size):
        return struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, 0, 0, 0, 0x21, 0, size, size,
                           len(name), 0, 0, 0, 0, 0, offset) + name

    size = struct.unpack("<I", good[first + 20:first + 24])[0]
    directory = central(b"o.npy", 0, len(inner)) + central(b"x.npy", 35, size)
    end = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 2, 2, len(directory), len(outer), 0)
    with open(path("bad_inside.npz"), "wb") as f:
        f.write(outer + directory + end)
    # A megabyte that unpacks from a kilobyte, while the header promises 12 values.
    blob = io.BytesIO()
    np.save(blob, pixels(3, 4))
    with zipfile.ZipFile(path("bad_bomb.npz"), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(zipfile.ZipInfo("y.npy"), b"")
        info = zipfile.ZipInfo("x.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        z.writestr(info, blob.getvalue() + bytes(1 << 20))


def idx():
    os.makedirs(IDX, exist_ok=True)
    for name, n in ("train", 3), ("t10k", 2):
        images = struct.pack(">BBBBIII", 0, 0, 8, 3, n, 5, 4) + pixels(n, 5, 4).tobytes()
        labels = struct.pack(">BBBBI", 0, 0, 8, 1, n) + bytes((k * 2) % 5 for k in range(n))
        for kind, data in ("images-idx3", images), ("labels-idx1", labels):
            with open(os.path.join(IDX, "%s-%s-ubyte.gz" % (name, kind)), "wb") as raw:
                with gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as f:
                    f.write(data)


def seeds():
    """The fuzz targets' first inputs; how each reads its bytes is said in fuzz_NAME.c."""
    def seed(target, name, data):
        folder = os.path.join(OUT, "../../fuzz/corpus", target)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)

    def array(a, version=(1, 0)):
        blob = io.BytesIO()
        np.lib.format.write_array(blob, a, version=version)
        return blob.getvalue()

    for layout, labels in enumerate((b"\x03", b"\x13\x63", b"\x00\x07")):
        seed("cifar", "whole%d" % layout, bytes([layout]) + labels + pixels(3072).tobytes())
        seed("cifar", "stretched%d" % layout, bytes([layout + 4, 0]) + labels * 9)
    seed("cifar", "cut", b"\x04\xff" + bytes(range(10)))
    seed("stl10", "whole", b"\x03\x00" + b"\x01\x0a\x05")
    seed("stl10", "cut", b"\x02\xff" + b"\x01\x0a")
    seed("stl10", "label", b"\x02\x00" + b"\x01\x0b")
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + b"\x02\x00\x01"
    for name, shape in ("grey", (3, 5, 4)), ("last", (3, 5, 4, 3)), ("first", (3, 3, 5, 4)):
        header = struct.pack(">BBBB%dI" % len(shape), 0, 0, 8, len(shape), *shape)
        seed("idx", name, bytes([len(labels)]) + header + pixels(*shape).tobytes() + labels)
    y = array(np.array([2, 0, 1]))
    kinds = dict(f4=np.ones((3, 4), "<f4"), f8=fortran(np.ones((3, 4), ">f8")),
                 f2=np.ones((3, 4), "<f2"), i8=np.ones((3, 4), ">i8"), b1=np.ones((3, 4), bool),
                 grey=pixels(3, 5, 4), hwc=fortran(pixels(3, 5, 4, 3)), chw=pixels(3, 3, 5, 4))
    for k, (name, a) in enumerate(kinds.items()):
        for mode in 0, 1, 2, 3:
            seed("npy", "%s_%d" % (name, mode), struct.pack("<BH", mode, len(y) if mode == 3 else 0)
                 + array(a, (1 + k % 3, 0)) + (y if mode == 3 else b""))
    for name in "deflated zip64 bad_crc bad_inside bad_bomb bad_twice bad_overlap".split():
        with open(path(name + ".npz"), "rb") as f:
            seed("npz", name, b"\x00" + f.read())
    blob = io.BytesIO()
    np.savez(blob, x=np.ones((3, 2)), y=np.array([0.5, 1, 2]), g=np.array([1, 0, 1]))
    seed("npz", "real", b"\x01" + blob.getvalue())


os.makedirs(OUT, exist_ok=True)
dtypes()
arrays()
plain()
archives()
idx()
seeds()
