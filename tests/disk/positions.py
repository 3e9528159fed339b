"""One position of a trace: the image that a kill leaves there, and the states of a power loss."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.image import Image
from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.power import apart, model_at, pairs, reordered, singles, subsets, torn, under_way, whole
from chaoskit.disk.recipe import Candidate, Model, Recipe

GENERATORS = (whole, singles, apart, reordered, torn, pairs, subsets)


def image_at(trace: Trace, position: int) -> Image:
    image = initial_image(trace)
    for op in trace.ops[:position]:
        image = apply(image, op)
    return image


def states(trace: Trace, at: int, profile: Profile, budget: int = 1000, seed: int = 0) -> Iterator[Candidate]:
    """Distinct states of a power loss at one position, the most telling first."""
    model = model_at(trace, at, profile)
    rng = random.Random(f"{seed}/{at}")
    recipes = chain.from_iterable(generate(model, rng) for generate in GENERATORS)
    yield from islice(_distinct(model, at, profile, recipes), budget)
    if at < len(trace.ops) and trace.ops[at].durable:
        model = model_at(trace, at, profile, under_way=True)
        yield from _distinct(model, at, profile, under_way(model, rng))


def _distinct(model: Model, at: int, profile: Profile, recipes: Iterator[Recipe]) -> Iterator[Candidate]:
    seen: set[int] = set()
    for recipe in recipes:
        image = model.build(recipe)
        if image.digest not in seen:
            seen.add(image.digest)
            yield Candidate(at, profile, recipe, image)
