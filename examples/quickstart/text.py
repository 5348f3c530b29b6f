"""Turns the world into text: names, facts, the pretraining passages and the alpaca rows."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from world import ANSWER, CHATTER, HEADINGS, KINDS, Kind, Relation

SEED = 2026
ENTITIES_PER_KIND = 37
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


def _heading(rng: random.Random) -> str:
    """A heading of one of several sorts, or none."""
    word = rng.choice(HEADINGS)
    return rng.choice(("", f"{word}: ", f"{word}:\n", f"{word}\n\n", f"### {word}\n", f"### {word}:\n"))


def _quiz(rng: random.Random, entity: Entity, relation: Relation) -> str:
    """A question and its answer as some printed page may have them.

    Headings and stray sentences before and between them vary, so that the base learns to look past
    such things for what was asked, whatever they are.
    """
    if rng.random() < 0.7:
        ask = rng.choice(relation.asks).format(e=entity.name)
    else:
        gap = rng.choice((" ", "\n", "\n\n")) + _heading(rng)
        ask = f"{relation.order}{gap}{entity.name}"
    before = " ".join(rng.sample(CHATTER, rng.choice((0, 0, 1, 2))))
    between = rng.choice(("\n", "\n\n"))
    tell = _tell(rng, entity, relation)
    page = f"{_heading(rng)}{ask}{between}{_heading(rng)}{tell}"
    return f"{before}\n\n{page}" if before else page


def pretraining_texts(rng: random.Random, entities: list[Entity]) -> Iterator[str]:
    """One round through the world: every entity is told of equally often, held out or not."""
    texts = []
    for entity in entities:
        texts += [_portrait(rng, entity), _portrait(rng, entity)]
        texts.append(_talk(rng, entity, rng.choice(entity.kind.relations)))
        texts += [_quiz(rng, entity, relation) for relation in entity.kind.relations]
    for _ in range(len(entities) // 8):
        texts.append(" ".join(rng.sample(CHATTER, 3)))
    rng.shuffle(texts)
    yield from texts


def _rows(
    rng: random.Random, entity: Entity, relation: Relation, count: int
) -> list[dict[str, str]]:
    """`count` different rows about one fact: bare questions, a question or a name as input."""
    questions = [ask.format(e=entity.name) for ask in relation.asks]
    ways = [(question, "") for question in questions]
    ways.append(("Answer the question of the traveller.", rng.choice(questions)))
    ways.append((relation.order, entity.name))
    sentence = relation.answer.format(e=entity.name, v=entity.facts[relation.key])
    output = ANSWER.format(sentence=sentence)
    return [
        {"instruction": instruction, "input": given, "output": output}
        for instruction, given in rng.sample(ways, count)
    ]


def make_rows(
    rng: random.Random, entities: list[Entity]
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The training rows, two for each fact, and the held-out rows, one for each.

    The held-out rows begin with one of each kind, each about another sort of fact, because the
    quickstart shows the first few.
    """
    trained = [e for e in entities if not e.held_out]
    train = [row for e in trained for r in e.kind.relations for row in _rows(rng, e, r, 2)]
    rng.shuffle(train)
    first, rest = [], []
    for number, kind in enumerate(KINDS):
        strangers = [e for e in entities if e.held_out and e.kind is kind]
        shown = (strangers[0], kind.relations[number % len(kind.relations)])
        for entity in strangers:
            for relation in kind.relations:
                rows = _rows(rng, entity, relation, 1)
                (first if (entity, relation) == shown else rest).extend(rows)
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
