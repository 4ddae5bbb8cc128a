#!/usr/bin/env python3
"""Writes images/: small pictures of test digits in the kinds of PNG and JPEG that a reader meets.

A name says the true label, the kind of file and how the digit is drawn: digit7_rgb_dark_on_light.png. The digits are
from examples/cnn/data (CC BY-SA 3.0, see the README there): of each label, the first one in the test set, but of 6 the
second, since the first has a speck beside it.

Needs: numpy, pillow.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent.parent / "examples" / "cnn" / "data"
OUT = HERE / "images"


def read_digits():
    """label -> uint8 [28,28]."""

    def content(name, header):
        return np.frombuffer(gzip.decompress((DIGITS / name).read_bytes()), np.uint8, offset=header)

    labels = content("test-labels-idx1-ubyte.gz", 8)
    images = content("test-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    return {label: images[np.flatnonzero(labels == label)[1 if label == 6 else 0]] for label in range(10)}


def ink(digit, width, height, size, left, top):
    """float [height,width] in [0, 1]: the digit scaled to size x size with its corner at (left, top)."""
    scaled = Image.fromarray(digit).resize((size, size), Image.Resampling.BICUBIC)
    canvas = Image.new("L", (width, height), 0)
    canvas.paste(scaled, (left, top))
    return np.asarray(canvas, np.float64) / 255


def blend(cover, background, foreground):
    """uint8 [h,w,c] (or [h,w] where the colours are numbers): foreground where cover is 1."""
    background, foreground = np.asarray(background, np.float64), np.asarray(foreground, np.float64)
    if background.ndim:
        cover = cover[..., None]
    return np.clip(np.rint(background + (foreground - background) * cover), 0, 255).astype(np.uint8)


def drawn(digit, place, background, foreground):
    """A picture of the digit; place: the arguments of ink()."""
    return Image.fromarray(blend(ink(digit, *place), background, foreground))


# x, y, dx, dy of each pass
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def save_interlaced(path, rgb):
    """An Adam7 PNG of uint8 [h,w,3]; Pillow reads them and does not write them."""
    data = bytearray()
    for x, y, dx, dy in ADAM7:
        rows = rgb[y::dy, x::dx]
        if rows.size:
            for row in rows:
                data += b"\0" + row.tobytes()

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", rgb.shape[1], rgb.shape[0], 8, 2, 0, 0, 1)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(data), 9)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    assert np.array_equal(np.asarray(Image.open(path)), rgb)


def main():
    OUT.mkdir(exist_ok=True)
    digits = read_digits()

    def png(name, image, **options):
        image.save(OUT / f"{name}.png", optimize=True, **options)

    def jpeg(name, image, **options):
        image.save(OUT / f"{name}.jpg", quality=88, **options)

    # PNG
    png("digit0_gray8_light_on_dark", Image.fromarray(digits[0]))
    png("digit1_gray8_dark_on_light", drawn(digits[1], (40, 48, 36, 2, 6), 235, 20))
    png("digit2_gray16_light_on_dark", Image.fromarray(digits[2].astype(np.uint16) * 257))
    png("digit7_rgb_dark_on_light", drawn(digits[7], (64, 64, 56, 4, 4), (250, 240, 215), (25, 30, 95)))
    png("digit3_rgb_light_on_dark", drawn(digits[3], (56, 40, 40, 8, 0), (20, 45, 35), (240, 245, 200)))

    # RGBA: the colour is the same everywhere, and only alpha draws the digit.
    alpha = np.rint(ink(digits[4], 48, 48, 48, 0, 0) * 255).astype(np.uint8)
    for name, colour in (("digit4_rgba_dark_on_transparent", 0), ("digit4_rgba_light_on_transparent", 255)):
        png(name, Image.fromarray(np.dstack([np.full((48, 48, 3), colour, np.uint8), alpha])))
    opaque = blend(ink(digits[5], 48, 48, 44, 2, 2), (225, 225, 240), (90, 10, 10))
    png("digit5_rgba_opaque_dark_on_light", Image.fromarray(np.dstack([opaque, np.full((48, 48), 255, np.uint8)])))
    png("digit6_graya_light_on_dark", Image.fromarray(np.dstack([digits[6], np.full((28, 28), 255, np.uint8)]), "LA"))

    colours = drawn(digits[8], (50, 50, 46, 2, 2), (255, 205, 90), (70, 0, 80))
    png("digit8_palette_dark_on_light", colours.quantize(16))
    png("digit9_1bit_dark_on_light", Image.fromarray(ink(digits[9], 56, 56, 52, 2, 2) < 0.5))
    png("digit0_1bit_light_on_dark", Image.fromarray(ink(digits[0], 56, 56, 52, 2, 2) >= 0.5))
    save_interlaced(
        OUT / "digit2_rgb_interlaced_light_on_dark.png",
        blend(ink(digits[2], 45, 51, 43, 1, 4), (60, 0, 20), (255, 250, 240)),
    )

    # JPEG
    jpeg("digit3_gray_light_on_dark", Image.fromarray(digits[3]))
    jpeg("digit5_gray_dark_on_light", drawn(digits[5], (64, 64, 60, 2, 2), 240, 15))
    jpeg("digit6_rgb_dark_on_light", drawn(digits[6], (64, 64, 56, 4, 4), (215, 235, 245), (20, 20, 60)))
    jpeg(
        "digit7_rgb444_light_on_dark",
        drawn(digits[7], (61, 47, 45, 8, 1), (10, 30, 90), (255, 225, 120)),
        subsampling=0,
    )
    jpeg(
        "digit8_rgb_progressive_dark_on_light",
        drawn(digits[8], (64, 60, 56, 4, 2), (245, 245, 235), (0, 70, 50)),
        progressive=True,
    )
    jpeg(
        "digit9_cmyk_dark_on_light",
        drawn(digits[9], (64, 64, 56, 4, 4), (250, 245, 240), (50, 20, 20)).convert("CMYK"),
    )

    # A page photographed under a lamp: light falls off to one side, the paper has grain and the pen is uneven.
    random = np.random.Generator(np.random.Philox(4))
    y, x = np.mgrid[0:150, 0:200]
    light = 0.66 + 0.34 * np.exp(-((x - 140) ** 2 / 2 / 95**2 + (y - 30) ** 2 / 2 / 80**2))
    paper = np.array([238, 228, 205]) * light[..., None] + random.normal(0, 2.5, (150, 200, 1))
    pen = np.array([35, 40, 80]) * (0.8 + 0.4 * light[..., None])
    cover = ink(digits[4], 200, 150, 110, 38, 22) * 0.95
    jpeg("digit4_photo_200x150_dark_on_light", Image.fromarray(blend(cover, paper, pen)))

    for path in sorted(OUT.iterdir()):
        image = Image.open(path)
        print(f"  {path.name}: {image.mode} {image.size[0]} x {image.size[1]}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
