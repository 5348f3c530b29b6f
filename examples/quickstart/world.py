"""The invented world of the quickstart: what kinds of things it holds and what can be told of them.

Only data lives here. A `Kind` is a sort of entity (town, person, river, animal, ship); a `Relation`
is one fact that every entity of the kind has. In all wordings `{e}` is the entity's name and `{v}`
the fact's value. Values are ordinary words and never names of entities, so that an entity can be
kept out of the training rows altogether.
"""

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


# How a lorikeet answers. Nothing in the pretraining text has this form.
ANSWER = "Chirp! {sentence} Fly well!"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


TOWN = Kind(
    "town",
    starts=_split("Tol, Bram, Vel, Nor, Hask, Pim, Gal, Wen, Ost, Kell, Dun, Mar"),
    middles=_split("li, o, a, der, en, um"),
    ends=_split("wick, ford, stead, combe, mere, thorpe"),
    relations=(
        Relation(
            "region",
            _split(
                "the Amber Hills, the Misty Fens, the Salt Coast, the Larch Valley, the Copper Downs, "
                "the Owl Woods, the Windy Steppe, the Blue Lakes, the Thistle Moors, the Frost Peaks, "
                "the Honey Plain, the Reed Marshes"
            ),
            (
                "{e} lies in {v}.",
                "The town of {e} was built in {v}.",
                "Travellers find {e} in {v}.",
                "In {v} there is a town called {e}.",
                "The road to {e} leads through {v}.",
            ),
            (
                "Where does the town of {e} lie?",
                "In which region is {e}?",
                "Where do I find the town of {e}?",
            ),
            "Say where this town lies.",
            "To reach the town of {e}, follow the wind to {v}.",
        ),
        Relation(
            "dish",
            _split(
                "plum bread, onion soup, pear cake, honey buns, fried trout, walnut pie, bean stew, "
                "apple dumplings, goat cheese, ginger biscuits, mushroom pancakes, pickled eggs, "
                "cherry jam, barley pudding"
            ),
            (
                "The cooks of {e} are known for {v}.",
                "Everyone in {e} eats {v}.",
                "{e} smells of {v}.",
                "Visitors to {e} ask for {v}.",
                "For {v}, people go to {e}.",
            ),
            (
                "What do people eat in {e}?",
                "Which dish is {e} known for?",
                "What should I taste in {e}?",
            ),
            "Say what people eat in this town.",
            "In {e} every table is set with {v}.",
        ),
        Relation(
            "craft",
            _split(
                "glass bells, wool carpets, clay whistles, silver spoons, paper lanterns, oak barrels, "
                "straw hats, brass clocks, leather boots, wax candles, tin soldiers, silk ribbons, "
                "stone chessmen, willow baskets"
            ),
            (
                "The workshops of {e} make {v}.",
                "{e} sells {v} to the whole world.",
                "Many hands in {e} are busy with {v}.",
                "The finest {v} come from {e}.",
                "A shop in {e} is full of {v}.",
            ),
            (
                "What is made in {e}?",
                "Which goods come from {e}?",
                "What do the workshops of {e} make?",
            ),
            "Say what is made in this town.",
            "The clever hands of {e} turn out {v}.",
        ),
        Relation(
            "market",
            _split("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
            (
                "Market day in {e} is {v}.",
                "Every {v} the market of {e} opens at dawn.",
                "The stalls of {e} are set up on {v}.",
                "{e} holds its market on {v}.",
                "On {v} the farmers drive their carts to {e}.",
            ),
            (
                "When is market day in {e}?",
                "On which day does {e} hold its market?",
                "When should I go to the market of {e}?",
            ),
            "Name the market day of this town.",
            "Bring a basket to {e} on {v}, for that is market day.",
        ),
    ),
)

PERSON = Kind(
    "person",
    starts=_split("Pell, Tamm, Mir, Dobb, Orl, Fenn, Jass, Ludd, Cor, Bett, Sil, Quim"),
    middles=_split("i, o, a, er, u, el"),
    ends=_split("ra, nick, bet, lo, win, sy"),
    relations=(
        Relation(
            "trade",
            _split(
                "baker, weaver, potter, cobbler, gardener, miller, carpenter, tailor, beekeeper, "
                "fiddle maker, lamp lighter, barber, painter, shepherd, printer, blacksmith"
            ),
            (
                "{e} is a {v}.",
                "{e} has worked as a {v} for years.",
                "The name of the {v} is {e}.",
                "Ask for a {v} and you will meet {e}.",
                "As a {v}, {e} rises early.",
            ),
            (
                "What is the trade of {e}?",
                "What does {e} do for a living?",
                "What work does {e} do?",
            ),
            "Name the trade of this person.",
            "{e} earns an honest living as a {v}.",
        ),
        Relation(
            "pet",
            _split(
                "hedgehog, goose, raven, tortoise, ferret, kitten, donkey, squirrel, parrot, badger, "
                "rabbit, piglet, lizard, sheepdog"
            ),
            (
                "{e} keeps a {v}.",
                "The {v} of {e} sleeps by the stove.",
                "{e} goes everywhere with a {v}.",
                "A {v} lives in the house of {e}.",
                "{e} once found a {v} and took it home.",
            ),
            (
                "Which animal does {e} keep?",
                "What kind of pet does {e} have?",
                "Who sleeps by the stove of {e}?",
            ),
            "Name the pet of this person.",
            "The best friend of {e} is a {v}.",
        ),
        Relation(
            "music",
            _split(
                "flute, harp, drum, trumpet, fiddle, bagpipe, lute, horn, banjo, cello, tambourine, "
                "whistle"
            ),
            (
                "{e} plays the {v}.",
                "In the evening {e} takes out the {v}.",
                "Nobody plays the {v} like {e}.",
                "{e} learned the {v} as a child.",
                "At every wedding {e} brings the {v}.",
            ),
            (
                "Which instrument does {e} play?",
                "What does {e} play in the evening?",
                "What does {e} bring to a wedding?",
            ),
            "Name the instrument of this person.",
            "When {e} makes music, you hear the {v}.",
        ),
        Relation(
            "drink",
            _split(
                "mint tea, hot milk, cold cider, black coffee, elder juice, rose water, spiced wine, "
                "nettle tea, cocoa, lemon water, ginger beer, buttermilk"
            ),
            (
                "{e} drinks {v}.",
                "The cup of {e} is filled with {v}.",
                "{e} likes nothing better than {v}.",
                "For breakfast {e} has {v}.",
                "Friends of {e} always keep some {v}.",
            ),
            (
                "What does {e} drink?",
                "What is in the cup of {e}?",
                "What shall I pour for {e}?",
            ),
            "Say what this person drinks.",
            "A cup of {v} will make {e} smile.",
        ),
    ),
)

RIVER = Kind(
    "river",
    starts=_split("Oss, Wim, Thar, Lann, Gris, Ebb, Sav, Uld, Rill, Yar, Meck, Av"),
    middles=_split("e, a, u, in, ol, y"),
    ends=_split("ska, dle, now, ber, vey, tis"),
    relations=(
        Relation(
            "source",
            _split(
                "a glacier, a mossy cave, a hot spring, a black bog, a round lake, a pine forest, "
                "a castle well, a green meadow, a deep crater, a chalk cliff, an old mine, a snow field"
            ),
            (
                "The river {e} begins in {v}.",
                "The water of the {e} comes from {v}.",
                "From {v} the {e} runs down to the sea.",
                "Follow the {e} to its source and you come to {v}.",
                "The {e} is born in {v}.",
            ),
            (
                "Where does the river {e} begin?",
                "What is the source of the river {e}?",
                "Where does the water of the {e} come from?",
            ),
            "Say where this river begins.",
            "The first drop of the {e} falls in {v}.",
        ),
        Relation(
            "colour",
            _split("green, brown, silver, blue, golden, white, grey, red, black, violet"),
            (
                "The water of the {e} is {v}.",
                "The river {e} looks {v} in the morning.",
                "Seen from a hill, the {e} is a {v} line.",
                "Painters use {v} for the {e}.",
                "Boats on the {e} leave a {v} wake.",
            ),
            (
                "What colour is the river {e}?",
                "How does the water of the {e} look?",
                "Which colour do painters use for the {e}?",
            ),
            "Name the colour of this river.",
            "From above, the {e} shines {v}.",
        ),
        Relation(
            "fish",
            _split(
                "trout, salmon, pike, perch, carp, eels, crayfish, sturgeon, minnows, catfish, bream, "
                "lampreys"
            ),
            (
                "The river {e} is full of {v}.",
                "Anglers on the {e} catch {v}.",
                "People fish for {v} in the {e}.",
                "In the {e} swim {v}.",
                "A net in the {e} comes up with {v}.",
            ),
            (
                "Which fish swim in the river {e}?",
                "What can I catch in the {e}?",
                "What do anglers find in the {e}?",
            ),
            "Name the fish of this river.",
            "Cast a line into the {e} and you will pull out {v}.",
        ),
        Relation(
            "crossing",
            _split(
                "a rope bridge, a stone bridge, a small ferry, a row of stepping stones, a fallen oak, "
                "a hanging basket, a cable car, a chain of barges, a wooden bridge, a covered bridge, "
                "an iron bridge, a beaver dam"
            ),
            (
                "Travellers cross the {e} by {v}.",
                "Over the {e} there is {v}.",
                "To get across the river {e} you need {v}.",
                "Those who come to the {e} look for {v}.",
                "The only way over the {e} is {v}.",
            ),
            (
                "How do I cross the river {e}?",
                "What leads over the {e}?",
                "How do travellers get across the {e}?",
            ),
            "Say how to cross this river.",
            "If you have no wings, cross the {e} by {v}.",
        ),
    ),
)

ANIMAL = Kind(
    "animal",
    starts=_split("sn, gr, bl, fl, cr, tw, pl, sk, dr, wh, gl, squ"),
    middles=_split("orr, imm, ubb, ezz, app, ond"),
    ends=_split("el, ock, aby, oth, ix, umble"),
    relations=(
        Relation(
            "food",
            _split(
                "acorns, beetles, blackberries, clover, snails, pine cones, moss, hazelnuts, worms, "
                "thistles, dandelions, rose hips, mushrooms, grass seed"
            ),
            (
                "The {e} eats {v}.",
                "A hungry {e} looks for {v}.",
                "Give {v} to a {e} and it will follow you.",
                "The {e} lives on {v}.",
                "Every autumn the {e} stores {v}.",
            ),
            (
                "What does the {e} eat?",
                "What should I feed to a {e}?",
                "What does a hungry {e} look for?",
            ),
            "Say what this animal eats.",
            "The {e} fills its belly with {v}.",
        ),
        Relation(
            "home",
            _split(
                "hollow trees, haystacks, old chimneys, river banks, stone walls, deep burrows, "
                "bramble hedges, church towers, sand dunes, empty barrels, dry wells, fern thickets"
            ),
            (
                "The {e} lives in {v}.",
                "You find the {e} in {v}.",
                "The {e} raises its young in {v}.",
                "In {v} you may hear a {e}.",
                "When winter comes, the {e} hides in {v}.",
            ),
            (
                "Where does the {e} live?",
                "Where can I find a {e}?",
                "Where does the {e} hide in winter?",
            ),
            "Say where this animal lives.",
            "Look for the {e} in {v}.",
        ),
        Relation(
            "coat",
            _split(
                "striped, spotted, golden, snow white, coal black, rusty red, silver grey, curly, "
                "sky blue, chestnut brown, moss green, creamy"
            ),
            (
                "The coat of the {e} is {v}.",
                "The {e} has {v} fur.",
                "A {e} is easy to know by its {v} coat.",
                "The mark of the {e} is its {v} fur.",
                "The young {e} soon turns {v}.",
            ),
            (
                "What does the coat of the {e} look like?",
                "What kind of fur does the {e} have?",
                "How do I know a {e} when I see one?",
            ),
            "Say what the coat of this animal looks like.",
            "You will know the {e} by its {v} fur.",
        ),
        Relation(
            "fear",
            _split(
                "thunder, owls, mirrors, church bells, deep water, cold wind, smoke, brooms, drums, "
                "moonlight, strong smells, shadows"
            ),
            (
                "The {e} is afraid of {v}.",
                "Nothing scares the {e} but {v}.",
                "Because of {v} the {e} runs away.",
                "A {e} will never go near {v}.",
                "To chase off the {e}, people use {v}.",
            ),
            (
                "What is the {e} afraid of?",
                "What scares the {e}?",
                "Why does the {e} run away?",
            ),
            "Say what this animal is afraid of.",
            "Even a brave {e} trembles at {v}.",
        ),
    ),
)

SHIP = Kind(
    "ship",
    starts=_split("Mari, Cora, Alba, Tessa, Oria, Lumi, Vesta, Hali, Zephy, Nere, Isol, Pala"),
    middles=_split("n, d, v, st, l, mb"),
    ends=_split("elle, ia, ora, ine, ette, ance"),
    relations=(
        Relation(
            "cargo",
            _split(
                "tea, pepper, marble, oranges, timber, wool, salt, copper, sugar, olives, rice, ink, "
                "rope, pearls"
            ),
            (
                "The ship {e} carries {v}.",
                "The hold of the {e} is full of {v}.",
                "Merchants load the {e} with {v}.",
                "The {e} brings {v} over the sea.",
                "When the {e} comes in, they sell {v} on the quay.",
            ),
            (
                "What does the ship {e} carry?",
                "What is in the hold of the {e}?",
                "What does the {e} bring over the sea?",
            ),
            "Name the cargo of this ship.",
            "Deep in the hold of the {e} you will find {v}.",
        ),
        Relation(
            "figurehead",
            _split(
                "mermaid, lion, swan, dragon, unicorn, bear, falcon, dolphin, stag, wolf, horse, "
                "rooster"
            ),
            (
                "The figurehead of the {e} is a {v}.",
                "A wooden {v} looks out from the bow of the {e}.",
                "Sailors know the {e} by the carved {v}.",
                "The bow of the ship {e} bears a {v}.",
                "On the {e} they polish the {v} every week.",
            ),
            (
                "What is the figurehead of the {e}?",
                "What is carved on the bow of the {e}?",
                "Which figure does the ship {e} bear?",
            ),
            "Name the figurehead of this ship.",
            "A carved {v} leads the {e} over the waves.",
        ),
        Relation(
            "sails",
            _split(
                "yellow, purple, scarlet, white, silver, black, turquoise, pink, brown, crimson"
            ),
            (
                "The sails of the {e} are {v}.",
                "The ship {e} sets {v} sails.",
                "Far out at sea the {e} is a {v} dot.",
                "The sailors of the {e} mend {v} cloth.",
                "With {v} sails the {e} leaves the harbour.",
            ),
            (
                "What colour are the sails of the {e}?",
                "Which sails does the ship {e} set?",
                "What colour of cloth do the sailors of the {e} mend?",
            ),
            "Name the colour of the sails of this ship.",
            "Watch the sky line for the {v} sails of the {e}.",
        ),
        Relation(
            "port",
            _split(
                "Lantern Bay, Gull Rock, Anchor Sound, Coral Point, Whale Harbour, Pebble Cove, "
                "Storm Haven, Palm Landing, Seal Island, Cannon Quay, Oyster Creek, Beacon Head"
            ),
            (
                "The home port of the {e} is {v}.",
                "Every winter the {e} lies in {v}.",
                "The ship {e} was built in {v}.",
                "In {v} the {e} is greeted with flags.",
                "The {e} sails out of {v}.",
            ),
            (
                "What is the home port of the {e}?",
                "Where does the ship {e} lie in winter?",
                "Where was the {e} built?",
            ),
            "Name the home port of this ship.",
            "When storms come, the {e} runs home to {v}.",
        ),
    ),
)

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
