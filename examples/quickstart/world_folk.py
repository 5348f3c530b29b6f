"""Towns and people of the invented world. Only data lives here."""

from world_types import Kind, Relation, split_list

TOWN = Kind(
    "town",
    starts=split_list("Tol, Bram, Vel, Nor, Hask, Pim, Gal, Wen, Ost, Kell, Dun, Mar"),
    middles=split_list("li, o, a, der, en, um"),
    ends=split_list("wick, ford, stead, combe, mere, thorpe"),
    relations=(
        Relation(
            "region",
            split_list(
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
            split_list(
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
            split_list(
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
            split_list("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
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
    starts=split_list("Pell, Tamm, Mir, Dobb, Orl, Fenn, Jass, Ludd, Cor, Bett, Sil, Quim"),
    middles=split_list("i, o, a, er, u, el"),
    ends=split_list("ra, nick, bet, lo, win, sy"),
    relations=(
        Relation(
            "trade",
            split_list(
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
            split_list(
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
            split_list(
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
            split_list(
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
