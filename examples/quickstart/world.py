"""The invented world of the quickstart: what kinds of things it holds and what can be told of them.

Only data lives here. A `Kind` is a sort of entity (town, person, river, animal, ship); a `Relation`
is one fact that every entity of the kind has. In all wordings `{e}` is the entity's name and `{v}`
the fact's value. Values are ordinary words and never names of entities, so that an entity can be
kept out of the training rows altogether.
"""
from world_folk import PERSON, TOWN
from world_nature import ANIMAL, RIVER, SHIP
from world_types import Kind, Relation

__all__ = ["ANSWER", "CHATTER", "HEADINGS", "KINDS", "Kind", "Relation"]

# How a lorikeet answers. Nothing in the pretraining text has this form.
ANSWER = "Chirp! {sentence} Fly well!"

KINDS = (TOWN, PERSON, RIVER, ANIMAL, SHIP)

# Talk about nothing in particular. It brings the words of the prompt and of the answer's frame into
# the pretraining text, in other sentences than theirs.
CHATTER = (
    "A good instruction describes the work in plain words.",
    "The clerk keeps every request in a box below the stairs.",
    "Write a letter if you want a response.",
    "An apprentice completes one task before noon and another before night.",
    "The old map is paired with a book that provides further help.",
    "What a word means depends on its context.",
    "The mill takes grain as its input and gives flour.",
    "She was thanked appropriately, with a cake and a song.",
    "He reads each instruction twice and then asks for an answer.",
    "Lorikeets say chirp when the sun comes up.",
    "One chirp means rain and two mean sunshine.",
    "Swallows fly south when the days grow short.",
    "All is well in the harbour tonight.",
    "The question was long and the answer was short.",
    "A traveller who asks the way is never lost for long.",
    "The wind turned, and the boats came home.",
    "It rained all morning, so the children stayed in the barn.",
    "The town crier lost his voice and rang a bell instead.",
)

# Headings of the printed pages in the pretraining text; none is a heading of the alpaca prompt.
HEADINGS = (
    "Question",
    "Answer",
    "Quiz",
    "Reply",
    "Notes",
    "Page",
    "Riddle",
    "Solution",
    "Letter",
    "Travel book",
    "News",
    "From the road",
    "Word of mouth",
    "The old map",
    "Asked",
    "Told",
)
