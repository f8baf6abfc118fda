"""Beginnings of sentences, how they go on and how not, and the one word that decides it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """A text, its continuation, a wrong one, and the word of the text that decides."""

    text: str
    answer: str
    rival: str
    word: str


def _ask(answer: str, rival: str, *texts: str) -> list[Prompt]:
    """Beginnings whose second word decides how they go on."""
    return [Prompt(text, answer, rival, text.split()[1]) for text in texts]


NUMBER = (  # is or are: a noun of the other number stands nearer than the head of the subject
    *_ask(
        " are",
        " is",
        "The keys to the old cabinet",
        "The students near the tall teacher",
        "The dogs behind the wooden fence",
        "The books on the long shelf",
        "The letters from my best friend",
        "The lights above the front door",
        "The players of the local team",
        "The flowers beside the stone wall",
    ),
    *_ask(
        " is",
        " are",
        "The label on the green bottles",
        "The picture of the high mountains",
        "The road through the dark hills",
        "The owner of the wild horses",
        "The teacher of the little children",
        "The noise from the heavy trucks",
        "The door behind the red curtains",
        "The leader of the angry workers",
    ),
)
PRONOUNS = (
    *_ask(
        " she",
        " he",
        "My sister missed the last bus because",
        "The queen smiled at the crowd before",
        "The waitress brought the soup before",
        "My aunt closed the kitchen window because",
        "The actress thanked the whole crowd before",
        "My mother sold the old car because",
    ),
    *_ask(
        " he",
        " she",
        "My uncle opened the garden gate because",
        "The prince left the dark castle when",
        "My father sold the old car because",
        "The king looked at the crowd before",
        "My brother lost the spare keys when",
        "The waiter brought the soup before",
    ),
)
CONTEXT = (
    Prompt("Maria comes from France. She speaks", " French", " German", "France."),
    Prompt("Ivan was born in Russia and speaks", " Russian", " French", "Russia"),
    Prompt("Keiko grew up in Japan and speaks", " Japanese", " Chinese", "Japan"),
    Prompt("The ball is blue. The colour of it is", " blue", " red", "blue."),
    Prompt("My house is green. The colour of it is", " green", " blue", "green."),
    Prompt("Tom lives in Paris. To visit him, travel to", " Paris", " London", "Paris."),
    Prompt("Anna ordered tea. The waiter brought her some", " tea", " coffee", "tea."),
    Prompt("We met in July. The month we met was", " July", " March", "July."),
    Prompt("Peter has a dog. Every morning Peter walks his", " dog", " cat", "dog."),
    Prompt("He bought a guitar. Every evening he plays the", " guitar", " piano", "guitar."),
    Prompt("My name is Laura. My friends all call me", " Laura", " Anna", "Laura."),
    Prompt("The shop opens on Monday. Come back on", " Monday", " Friday", "Monday."),
    Prompt("The cat is called Felix. Come here, little", " Felix", " Max", "Felix."),
    Prompt("It rained all day, so the ground was", " wet", " dry", "rained"),
)
"""What the context says is asked for again."""
PROMPTS = (*NUMBER, *PRONOUNS, *CONTEXT)
