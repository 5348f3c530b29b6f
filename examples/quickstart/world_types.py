"""What an invented world is made of: kinds of things and what can be told of each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    key: str
    values: tuple[str, ...]
    tells: tuple[str, ...]  # plain statements, for the pretraining text
    asks: tuple[str, ...]  # questions, for the pretraining text (as talk) and the rows
    order: str  # an instruction whose input is the bare name
    answer: str  # one more statement: the one that fine-tuning picks and puts into `ANSWER`


@dataclass(frozen=True)
class Kind:
    key: str
    starts: tuple[str, ...]  # names are start + middle + end
    middles: tuple[str, ...]
    ends: tuple[str, ...]
    relations: tuple[Relation, ...]


def split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
