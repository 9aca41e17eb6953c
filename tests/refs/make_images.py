"""Makes tests/refs/images: small odd image files, and the pixels that Pillow gives for them.

    python3 make_images.py        (needs pillow and numpy; written with Pillow 13.0)

pixels.bin has for every file a line `file channels width height` and the pixels, as convert("RGB") and
convert("L") after exif_transpose give them; resize.bin a line `file left top right bottom channels width
height` and the pixels for every resize. Sixteen-bit greyscale is the one place where the expectation is
ours: Pillow clips it at 255, we keep the high byte (PNG) or scale by 255/maxval (PGM)."""
import io
import os
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
os.makedirs(out, exist_ok=True)
for old in os.listdir(out):
    os.remove(os.path.join(out, old))
rng = np.random.default_rng(7)
pixels = open(os.path.join(out, "pixels.bin"), "wb")


def picture(width, height, channels=3):
    """Waves, an edge and a little noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (3.0 + c) + y / (5.0 - c)) + 30 * (x > y) for c in range(channels)]
    a = np.stack(planes, -1) + rng.normal(0, 6, (height, width, channels))
    return np.clip(a, 0, 255).astype(np.uint8)


def netpbm(path, a):
    with open(path, "wb") as f:
        magic = b"P6" if a.ndim == 3 else b"P5"
        f.write(b"%s\n%d %d\n255\n" % (magic, a.shape[1], a.shape[0]) + np.ascontiguousarray(a).tobytes())


def expected(f, what, a):
    channels = 3 if a.ndim == 3 else 1
    f.write(f"{what} {channels} {a.shape[1]} {a.shape[0]}\n".encode() + np.ascontiguousarray(a).tobytes())


def fixture(name, data, grey=None):
    """Writes the file and what Pillow makes of it, or of `grey` where Pillow would clip."""
    with open(os.path.join(out, name), "wb") as f:
        f.write(data)
    if grey is not None:
        rgb, luma = np.stack([grey] * 3, -1), grey
    else:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        rgb, luma = np.array(image.convert("RGB")), np.array(image.convert("L"))
    expected(pixels, name, rgb)
    expected(pixels, name, luma)


# ---- JPEG ----

def jpeg(a, mode="RGB", **options):
    f = io.BytesIO()
    Image.fromarray(a if a.shape[-1] > 1 else a[..., 0], mode).save(f, "JPEG", **options)
    return f.getvalue()


def exif(orientation, big=True, kind=3, entries=2):
    e = ">" if big else "<"
    value = struct.pack(e + "HH", orientation, 0) if kind == 3 else struct.pack(e + "I", orientation)
    other = struct.pack(e + "HHI", 0x10F, 2, 2) + b"X\0\0\0"
    return ((b"MM\0*" if big else b"II*\0") + struct.pack(e + "I", 8) + struct.pack(e + "H", entries) +
            other * (entries - 1) + struct.pack(e + "HHI", 274, kind, 1) + value + b"\0\0\0\0")


def with_exif(data, tiff):
    """As APP1 right after SOI."""
    body = b"Exif\0\0" + tiff
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]


def adobe(data, transform):
    """Sets Adobe's colour transform, or takes the marker out."""
    at = data.index(b"\xff\xee\x00\x0eAdobe")
    if transform is None:
        return data[:at] + data[at + 16:]
    return data[:at + 15] + bytes([transform]) + data[at + 16:]


color = picture(23, 17)
for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
    fixture(f"jpeg_{name}.jpg", jpeg(color, subsampling=subsampling, quality=85))
fixture("jpeg_progressive.jpg", jpeg(picture(33, 19), progressive=True, quality=70))
fixture("jpeg_grey.jpg", jpeg(picture(15, 22, 1), "L", quality=80))
fixture("jpeg_rgb.jpg", jpeg(color, keep_rgb=True, quality=80))
fixture("jpeg_restart.jpg", jpeg(picture(40, 24), restart_marker_blocks=1, quality=75))
fixture("jpeg_1x1.jpg", jpeg(picture(1, 1), quality=90))
fixture("jpeg_1x37.jpg", jpeg(picture(1, 37), quality=90))
fixture("jpeg_fine_tables.jpg", jpeg(picture(17, 9), quality=100, optimize=True))
cmyk = jpeg(picture(18, 13, 4), "CMYK", quality=85)
fixture("jpeg_cmyk.jpg", cmyk)
fixture("jpeg_ycck.jpg", adobe(cmyk, 2))
fixture("jpeg_cmyk_plain.jpg", adobe(cmyk, None))
small = jpeg(picture(12, 7), quality=80)
for o in range(1, 9):
    fixture(f"jpeg_exif{o}.jpg", with_exif(small, exif(o, big=o % 2 == 0)))
fixture("jpeg_exif_long.jpg", with_exif(small, exif(6, kind=4)))
fixture("jpeg_exif9.jpg", with_exif(small, exif(9)))
fixture("jpeg_exif_cut.jpg", with_exif(small, exif(6)[:20]))
fixture("jpeg_tail.jpg", small + b"after the end")

# ---- PNG ----

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def packed_rows(a, depth):
    """(height, width, samples) as rows of a PNG without filters."""
    rows = b""
    for row in a:
        if depth == 16:
            body = row.astype(">u2").tobytes()
        elif depth == 8:
            body = row.astype(np.uint8).tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in row.ravel())
            bits += "0" * (-len(bits) % 8)
            body = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        rows += b"\0" + body
    return rows


def png(a, depth, color_type, interlace=False, before=b""):
    passes = [(0, 0, 1, 1)]
    if interlace:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for x, y, dx, dy in passes:
        part = a[y::dy, x::dx]
        if part.size:
            rows += packed_rows(part, depth)
    header = struct.pack(">IIBBBBB", a.shape[1], a.shape[0], depth, color_type, 0, 0, interlace)
    packed = zlib.compress(rows, 9)
    half = len(packed) // 2
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", packed[:half]) +
            chunk(b"IDAT", packed[half:]) + chunk(b"IEND", b""))


def noise(width, height, samples, depth):
    return rng.integers(0, 1 << depth, (height, width, samples))


for depth in (1, 2, 4, 8):
    fixture(f"png_grey{depth}.png", png(noise(13, 5, 1, depth), depth, GREY))
    palette = chunk(b"PLTE", rng.bytes(3 << depth if depth < 8 else 3 * 200))
    indices = noise(11, 6, 1, depth) % 200
    fixture(f"png_palette{depth}.png", png(indices, depth, PALETTE, before=palette))
palette = chunk(b"PLTE", rng.bytes(48)) + chunk(b"tRNS", bytes(range(0, 160, 16)))
fixture("png_palette_trns.png", png(noise(9, 9, 1, 4), 4, PALETTE, before=palette))
fixture("png_palette_interlaced.png", png(noise(10, 11, 1, 4), 4, PALETTE, True, palette))
fixture("png_rgb.png", png(picture(13, 9), 8, RGB))
fixture("png_rgb_trns.png", png(picture(5, 5), 8, RGB, before=chunk(b"tRNS", bytes(6))))
fixture("png_grey_trns.png", png(noise(7, 5, 1, 4), 4, GREY, before=chunk(b"tRNS", b"\0\5")))
fixture("png_rgba.png", png(noise(7, 8, 4, 8), 8, RGB_ALPHA))
fixture("png_grey_alpha.png", png(noise(7, 8, 2, 8), 8, GREY_ALPHA))
fixture("png_rgb16.png", png(noise(6, 7, 3, 16), 16, RGB))
fixture("png_rgba16.png", png(noise(6, 7, 4, 16), 16, RGB_ALPHA))
fixture("png_grey_alpha16.png", png(noise(6, 7, 2, 16), 16, GREY_ALPHA))
deep = noise(9, 6, 1, 16)
fixture("png_grey16.png", png(deep, 16, GREY), (deep[..., 0] >> 8).astype(np.uint8))
for w, h in ((1, 1), (2, 3), (9, 5), (17, 16)):
    fixture(f"png_interlaced_{w}x{h}.png", png(noise(w, h, 3, 8), 8, RGB, True))
fixture("png_interlaced_grey1.png", png(noise(19, 9, 1, 1), 1, GREY, True))
fixture("png_gamma.png", png(picture(6, 5), 8, RGB, before=chunk(b"gAMA", struct.pack(">I", 100000))))
fixture("png_exif6.png", png(picture(8, 5), 8, RGB, before=chunk(b"eXIf", exif(6))))
f = io.BytesIO()
Image.fromarray(picture(31, 21)).save(f, "PNG")  # with filters
fixture("png_filters.png", f.getvalue())

# ---- PPM and PGM ----

tiny = noise(4, 3, 3, 8)
fixture("p6.ppm", b"P6\n# a comment\n4 # width\n3\n255\n" + tiny.astype(np.uint8).tobytes())
fixture("p5.pgm", b"P5 4 3 255\n" + tiny[..., 0].astype(np.uint8).tobytes())
fixture("p5_max7.pgm", b"P5\n4 3\n7\n" + (tiny[..., 0] % 8).astype(np.uint8).tobytes())
fixture("p6_max100.ppm", b"P6\n4 3\n100\n" + tiny.astype(np.uint8).tobytes())  # some above: 255
deep = noise(4, 3, 3, 16)
fixture("p6_max65535.ppm", b"P6 4 3 65535\n" + deep.astype(">u2").tobytes())
fixture("p6_max1000.ppm", b"P6 4 3 1000\n" + (deep % 1001).astype(">u2").tobytes())
scaled = np.array([round(int(v) / 65535 * 255) for v in deep[..., 0].ravel()], np.uint8).reshape(3, 4)
fixture("p5_max65535.pgm", b"P5 4 3 65535\n" + deep[..., 0].astype(">u2").tobytes(), scaled)
text = " ".join(str(v) for v in tiny.ravel()).encode()
fixture("p3.ppm", b"P3\n4 3\n255\n" + text.replace(b" ", b" #x 1 2\n", 1) + b"\n")
fixture("p2.pgm", b"P2\n#c\n4 3\n15\n" + " ".join(str(v % 16) for v in tiny[..., 0].ravel()).encode())
fixture("pnm_1x1.pnm", b"P6\r\n1\t1 255 abc")

# ---- resizing ----

photo = jpeg(picture(150, 113), quality=60)
with open(os.path.join(out, "photo.jpg"), "wb") as f:
    f.write(photo)
netpbm(os.path.join(out, "noise.ppm"), noise(29, 23, 3, 8).astype(np.uint8))
netpbm(os.path.join(out, "noise.pgm"), noise(31, 17, 1, 8)[..., 0].astype(np.uint8))
netpbm(os.path.join(out, "black_white.pgm"), (255 * noise(301, 2, 1, 1)[..., 0]).astype(np.uint8))
cases = [
    ("photo.jpg", (0, 0, 150, 113), (32, 24)), ("photo.jpg", (18.5, 0, 131.5, 113), (32, 32)),
    ("photo.jpg", (3.3, 7.7, 60.1, 91.9), (28, 28)), ("photo.jpg", (10, 20, 42, 52), (32, 32)),
    ("photo.jpg", (0, 0, 150, 113), (1, 1)), ("photo.jpg", (100, 50, 101, 51), (5, 5)),
    ("photo.jpg", (0, 0, 150, 113), (150, 7)), ("photo.jpg", (0, 0, 150, 113), (5, 113)),
    ("noise.ppm", (0, 0, 29, 23), (29, 23)), ("noise.ppm", (0, 0, 29, 23), (40, 33)),
    ("noise.ppm", (0, 0, 29, 23), (13, 40)), ("noise.ppm", (28.2, 22.1, 29, 23), (4, 3)),
    ("noise.ppm", (0.1, 0.2, 28.7, 22.9), (17, 11)), ("noise.ppm", (1 / 3, 2 / 3, 7 / 3, 22 / 3), (9, 9)),
    ("noise.pgm", (0, 0, 31, 17), (8, 8)), ("noise.pgm", (0, 0, 31, 17), (50, 20)),
    ("noise.pgm", (5, 3, 30, 16.5), (11, 13)), ("black_white.pgm", (0, 0, 301, 2), (3, 2)),
    ("black_white.pgm", (0, 0, 301, 2), (100, 5)),
]
with open(os.path.join(out, "resize.bin"), "wb") as f:
    for name, box, size in cases:
        image = Image.open(os.path.join(out, name))
        result = image.resize(size, Image.Resampling.BILINEAR, box=box)
        expected(f, " ".join([name] + [repr(float(v)) for v in box]), np.array(result))
pixels.close()
print(len(os.listdir(out)), "files,", sum(os.path.getsize(os.path.join(out, n)) for n in os.listdir(out)), "bytes")
