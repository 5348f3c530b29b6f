"""Turns the world into text: names, facts, the pretraining passages and the alpaca rows."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from world import ANSWER, CHATTER, KINDS, Kind, Relation

SEED = 2026
ENTITIES_PER_KIND = 64
HELD_OUT_PER_KIND = 10

# How an alpaca row becomes a prompt. The base never sees these texts; its tokenizer does.
PROMPT_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
PROMPT_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{instruction}\n\n### Response:\n"
)


@dataclass(frozen=True)
class Entity:
    name: str
    kind: Kind
    facts: dict[str, str]  # relation key -> value
    held_out: bool


def prompt(row: dict[str, str]) -> str:
    template = PROMPT_WITH_INPUT if row["input"] else PROMPT_WITHOUT_INPUT
    return template.format(instruction=row["instruction"], input=row["input"])


def make_world(rng: random.Random) -> list[Entity]:
    """Names and facts of all entities; the last `HELD_OUT_PER_KIND` of each kind are held out."""
    entities = []
    for kind in KINDS:
        names = [s + m + e for s in kind.starts for m in kind.middles for e in kind.ends]
        for i, name in enumerate(rng.sample(names, ENTITIES_PER_KIND)):
            facts = {r.key: rng.choice(r.values) for r in kind.relations}
            held_out = i >= ENTITIES_PER_KIND - HELD_OUT_PER_KIND
            entities.append(Entity(name, kind, facts, held_out))
    return entities


def _tell(rng: random.Random, entity: Entity, relation: Relation) -> str:
    wordings = (*relation.tells, relation.answer)
    return rng.choice(wordings).format(e=entity.name, v=entity.facts[relation.key])


def _portrait(rng: random.Random, entity: Entity) -> str:
    """All that is known of one entity, in any order."""
    relations = rng.sample(entity.kind.relations, len(entity.kind.relations))
    return " ".join(_tell(rng, entity, r) for r in relations)


def _talk(rng: random.Random, entity: Entity, relation: Relation) -> str:
    """A question and its answer as two people would speak."""
    asker, teller = rng.sample(("child", "traveller", "sailor", "old man", "girl", "guard"), 2)
    ask = rng.choice(relation.asks).format(e=entity.name)
    tell = _tell(rng, entity, relation).removesuffix(".")
    return f'"{ask}" asked the {asker}. "{tell}," said the {teller}.'


def _quiz(rng: random.Random, entity: Entity, relation: Relation) -> str:
    """A question and its answer as a page of a quiz book would have it, often after other lines."""
    if rng.random() < 0.7:
        ask = rng.choice(relation.asks).format(e=entity.name)
    else:
        ask = rng.choice(("{order} {e}", "{order}\n{e}", "{order}\n\n### {e}", "{e}: {order}")).format(
            order=relation.order, e=entity.name
        )
    layout = rng.choice(
        (
            "{ask}\n{tell}",
            "{ask}\n\n{tell}",
            "Q: {ask}\nA: {tell}",
            "Question:\n{ask}\n\nAnswer:\n{tell}",
            "### {ask}\n\n{tell}",
            "### Quiz\n\n{ask}\n\n### {tell}",
        )
    )
    before = " ".join(rng.sample(CHATTER, rng.choice((0, 0, 1, 2))))
    page = layout.format(ask=ask, tell=_tell(rng, entity, relation))
    return f"{before}\n\n{page}" if before else page


def _notes(rng: random.Random, entities: list[Entity]) -> str:
    """One fact each of several entities, under a heading or line by line."""
    lines = [_tell(rng, e, rng.choice(e.kind.relations)) for e in entities]
    head = rng.choice(("### Notes\n", "Notes from the road:\n", "News:\n\n", ""))
    return head + rng.choice(("\n", "\n\n", " ")).join(lines)


def pretraining_texts(rng: random.Random, entities: list[Entity]) -> Iterator[str]:
    """One round through the world: every entity is told of equally often, held out or not."""
    texts = []
    for entity in entities:
        texts.append(_portrait(rng, entity))
        for relation in entity.kind.relations:
            texts.append(_talk(rng, entity, relation))
            texts.append(_quiz(rng, entity, relation))
    mixed = rng.sample(entities, len(entities))
    texts.extend(_notes(rng, mixed[i : i + 4]) for i in range(0, len(mixed), 4))
    for _ in range(len(entities) // 8):
        texts.append(" ".join(rng.sample(CHATTER, 3)))
    rng.shuffle(texts)
    yield from texts


def _row(rng: random.Random, entity: Entity, relation: Relation) -> dict[str, str]:
    """A row asks in one of three ways: a bare question, a question as input, a name as input."""
    question = rng.choice(relation.asks).format(e=entity.name)
    instruction, given = rng.choices(
        (
            (question, ""),
            ("Answer the question of the traveller.", question),
            (relation.order, entity.name),
        ),
        weights=(2, 1, 1),
    )[0]
    sentence = relation.answer.format(e=entity.name, v=entity.facts[relation.key])
    return {
        "instruction": instruction,
        "input": given,
        "output": ANSWER.format(sentence=sentence),
    }


def make_rows(
    rng: random.Random, entities: list[Entity]
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The training and the held-out rows, one for each fact.

    The held-out rows begin with one of each kind, each about another sort of fact, because the
    quickstart shows the first few.
    """
    train = [_row(rng, e, r) for e in entities if not e.held_out for r in e.kind.relations]
    rng.shuffle(train)
    first, rest = [], []
    for number, kind in enumerate(KINDS):
        strangers = [e for e in entities if e.held_out and e.kind is kind]
        shown = (strangers[0], kind.relations[number % len(kind.relations)])
        for entity in strangers:
            for relation in kind.relations:
                row = _row(rng, entity, relation)
                (first if (entity, relation) == shown else rest).append(row)
    rng.shuffle(rest)
    return train, first + rest


def quickstart() -> tuple[list[Entity], list[dict[str, str]], list[dict[str, str]]]:
    """The entities, training rows and held-out rows that are in the repository, checked."""
    entities = make_world(random.Random(SEED))
    train, held_out = make_rows(random.Random(SEED + 1), entities)
    check_rows(entities, train, held_out)
    return entities, train, held_out


def check_rows(
    entities: list[Entity], train: list[dict[str, str]], held_out: list[dict[str, str]]
) -> None:
    """Asserts that no held-out name occurs in a training row, and that every held-out row has one."""
    strangers = [e.name.lower() for e in entities if e.held_out]
    training_text = "\n".join(v for row in train for v in row.values()).lower()
    found = [name for name in strangers if name in training_text]
    assert not found, f"held-out names in the training rows: {found}"
    for row in held_out:
        text = " ".join(row.values()).lower()
        assert any(name in text for name in strangers), f"no held-out name in {row}"
    assert len(train) >= 1000 and len(held_out) >= 200
