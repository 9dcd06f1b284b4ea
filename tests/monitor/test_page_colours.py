"""The colours of the page: people who see fewer of them can tell them apart, and everybody can read what is written.

How somebody sees who lacks one kind of cones is computed as Machado, Oliveira and Fernandes (2009) do it, for the
complete lack; how different two colours look is their distance in CIELAB (1976). Contrast is that of WCAG 2.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

Colour = NDArray[np.float64]
"""Red, green and blue, linear, from 0 to 1."""

THEME = (Path(__file__).parents[2] / "src" / "overlane" / "monitor" / "page" / "theme.css").read_text()
CONES = {
    "all": np.eye(3),
    "no long": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no short": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def themes() -> dict[str, dict[str, Colour]]:
    light, dark = (
        {name: linear(value) for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)}
        for part in THEME.split('[data-theme="dark"]')
    )
    return {"light": light, "dark": {**light, **dark}}


def linear(hexadecimal: str) -> Colour:
    value = np.array([int(hexadecimal[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour: Colour) -> Colour:
    x, y, z = (TO_XYZ @ np.clip(colour, 0, 1)) / WHITE
    fx, fy, fz = (np.cbrt(one) if one > 216 / 24389 else (24389 / 27 * one + 16) / 116 for one in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def luminance(colour: Colour) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ colour)


def contrast(one: Colour, other: Colour) -> float:
    darker, brighter = sorted((luminance(one), luminance(other)))
    return (brighter + 0.05) / (darker + 0.05)


THEMES = themes()
ALIKE = 10.0
"""Two colours that are nearer than this may be taken for one another at a glance; 2.3 is what the eye can notice."""


@pytest.mark.parametrize("cones", CONES)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    "names",
    [
        ("link", "reserved", "warning-ink", "bad"),
        ("good", "warning-ink", "bad", "faint"),
        ("path-0", "path-1", "path-2", "path-3"),
    ],
    ids=["links", "brokers", "paths"],
)
def test_what_has_different_colours_looks_different_whichever_cones_somebody_has(
    theme: str, names: tuple[str, ...], cones: str
) -> None:
    seen = {name: lab(CONES[cones] @ THEMES[theme][name]) for name in names}
    far = {(one, other): float(np.linalg.norm(seen[one] - seen[other])) for one, other in combinations(names, 2)}
    assert {pair: distance for pair, distance in far.items() if distance < ALIKE} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_words_can_be_read_on_everything_they_stand_on(theme: str) -> None:
    colours = THEMES[theme]
    found = {
        (ink, ground): contrast(colours[ink], colours[ground])
        for ink in ("text", "soft", "faint", "good", "warning", "bad", "accent")
        for ground in ("sheet", "ground", "raised", "accent-soft")
    }
    assert {pair: round(value, 2) for pair, value in found.items() if value < 4.5} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_what_is_drawn_stands_out_from_the_map(theme: str) -> None:
    colours = THEMES[theme]
    found = {
        (ink, ground): contrast(colours[ink], colours[ground])
        for ink in ("link", "reserved", "good", "warning-ink", "bad", "path-0", "path-1", "path-2", "path-3")
        for ground in ("sea", "land")
    }
    assert {pair: round(value, 2) for pair, value in found.items() if value < 3.0} == {}
