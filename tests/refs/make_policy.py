#!/usr/bin/env python3
"""Makes policy.txt: the results of torchvision's operations and policies, for tests/test_policy.c.

    image HEIGHT WIDTH CHANNELS BYTES          (channels, height, width), in hexadecimal
    case OPERATION MAGNITUDE BYTES             the last image after one operation of torchvision on a Pillow image
    policy OP PROBABILITY MAGNITUDE SIGNED OP PROBABILITY MAGNITUDE SIGNED    AutoAugment, CIFAR-10, on 32 x 24 images
    random BIN OP MAGNITUDE SIGNED             RandAugment at magnitudes 9 and 20 of 30, on 32 x 24 images

Interpolation is torchvision's default, nearest. Needs torchvision and Pillow; prints by how much torchvision's
operations on tensors differ from those on Pillow images.
"""
import os

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

NAMES = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
         "Posterize", "Solarize", "AutoContrast", "Equalize", "Identity", "Invert"]
MAGNITUDES = {"ShearX": [0.1, -0.09, 0.3], "ShearY": [0.1, -0.09, 0.3], "TranslateX": [3.9, -2, 7],
              "TranslateY": [3.9, -2, 7], "Rotate": [9, -9, 30, 3.3, 0], "Brightness": [0.27, -0.27, 0.9, -0.9, 0],
              "Color": [0.27, -0.27, 0.9, -0.9], "Contrast": [0.27, -0.27, 0.9, -0.9],
              "Sharpness": [0.27, -0.27, 0.9, -0.9], "Posterize": [4, 5, 7, 8], "Solarize": [0, 178.5, 127, 255]}


TABLES = ["Brightness", "Contrast", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"]


def images():
    """An image and which operations are tried on it."""
    y, x, c = np.meshgrid(np.arange(9), np.arange(11), np.arange(3), indexing="ij")
    noise = np.random.default_rng(1).integers(0, 40, y.shape)
    smooth = 110 + 70 * np.sin(x / 3 + c) * np.cos(y / 4) + 2 * x - c * 15
    yield (smooth + noise - 20).clip(0, 255).astype(np.uint8), NAMES  # neither 0 nor 255 in every channel
    yield np.random.default_rng(2).integers(0, 256, y.shape).astype(np.uint8), NAMES
    yield np.where(x < 5, 40, 200).astype(np.uint8), TABLES  # two bytes
    yield np.full(y.shape, 77, np.uint8), TABLES
    yield np.random.default_rng(3).integers(20, 120, (32, 32, 3)).astype(np.uint8), ["Equalize", "Rotate"]
    yield np.random.default_rng(4).integers(20, 120, (8, 7, 1)).astype(np.uint8), NAMES


def apply(image, name, magnitude):
    return autoaugment._apply_op(image, name, magnitude, interpolation=InterpolationMode.NEAREST, fill=None)


def hexadecimal(array):
    return np.ascontiguousarray(array.transpose(2, 0, 1)).tobytes().hex()


def main():
    off = {}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policy.txt")
    with open(path, "w") as out:
        for array, names in images():
            picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
            tensor = torch.from_numpy(array.transpose(2, 0, 1).copy())
            print("image", *array.shape, hexadecimal(array), file=out)
            for name in names:
                for magnitude in MAGNITUDES.get(name, [0]):
                    made = np.asarray(apply(picture, name, magnitude)).reshape(array.shape)
                    print("case", name, magnitude, hexadecimal(made), file=out)
                    other = apply(tensor, name, magnitude).numpy().transpose(1, 2, 0)
                    far = np.abs(other.astype(int) - made)
                    was = off.get(name, (0, 0))
                    off[name] = max(was[0], far.max()), max(was[1], (far > 1).mean())
        auto = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy.CIFAR10)
        space = auto._augmentation_space(10, (24, 32))
        for policy in auto.policies:
            print("policy", file=out, end="")
            for name, probability, bin_ in policy:
                magnitudes, signed = space[name]
                magnitude = float(magnitudes[bin_]) if bin_ is not None else 0
                print("", name, probability, magnitude, int(signed and bin_ is not None), file=out, end="")
            print(file=out)
        for bin_ in (9, 20):
            for name, (magnitudes, signed) in autoaugment.RandAugment()._augmentation_space(31, (24, 32)).items():
                magnitude = float(magnitudes[bin_]) if magnitudes.ndim else 0
                print("random", bin_, name, magnitude, int(signed), file=out)
    for name, (most, share) in off.items():
        print(f"{name}: tensors differ by {most} at most, by more than 1 in {100 * share:.1f}% of the bytes of an image")


main()
