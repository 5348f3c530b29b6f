"""Rivers, animals and ships of the invented world. Only data lives here."""

from world_types import Kind, Relation, split_list

RIVER = Kind(
    "river",
    starts=split_list("Oss, Wim, Thar, Lann, Gris, Ebb, Sav, Uld, Rill, Yar, Meck, Av"),
    middles=split_list("e, a, u, in, ol, y"),
    ends=split_list("ska, dle, now, ber, vey, tis"),
    relations=(
        Relation(
            "source",
            split_list(
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
            split_list("green, brown, silver, blue, golden, white, grey, red, black, violet"),
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
            split_list(
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
            split_list(
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
    starts=split_list("sn, gr, bl, fl, cr, tw, pl, sk, dr, wh, gl, squ"),
    middles=split_list("orr, imm, ubb, ezz, app, ond"),
    ends=split_list("el, ock, aby, oth, ix, umble"),
    relations=(
        Relation(
            "food",
            split_list(
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
            split_list(
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
            split_list(
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
            split_list(
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
    starts=split_list("Mari, Cora, Alba, Tessa, Oria, Lumi, Vesta, Hali, Zephy, Nere, Isol, Pala"),
    middles=split_list("n, d, v, st, l, mb"),
    ends=split_list("elle, ia, ora, ine, ette, ance"),
    relations=(
        Relation(
            "cargo",
            split_list(
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
            split_list(
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
            split_list(
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
            split_list(
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
