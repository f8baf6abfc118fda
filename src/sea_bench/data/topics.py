"""Short texts about nothing in particular, with one phrase that gives them a topic."""

from dataclasses import dataclass

TOPICS = {
    "sports": (
        "the penalty shoot-out",
        "a marathon runner",
        "the tennis final",
        "a famous goalkeeper",
        "the basketball coach",
        "her swimming medal",
        "the cycling race",
        "a boxing champion",
    ),
    "politics": (
        "the parliament vote",
        "a senator's campaign",
        "the prime minister",
        "a new tax law",
        "the coalition talks",
        "an election poster",
        "the opposition party",
        "a foreign treaty",
    ),
    "cooking": (
        "a garlic sauce",
        "the bread recipe",
        "roasted vegetables",
        "a chocolate cake",
        "the frying pan",
        "fresh basil pesto",
        "a slow-cooked stew",
        "his pancake batter",
    ),
    "medicine": (
        "a knee surgery",
        "the flu vaccine",
        "her blood pressure",
        "an antibiotic prescription",
        "the cancer clinic",
        "a broken wrist",
        "the heart surgeon",
        "his asthma inhaler",
    ),
    "music": (
        "a violin concerto",
        "the jazz band",
        "an opera singer",
        "her piano lessons",
        "a guitar solo",
        "the church choir",
        "a new rap album",
        "the drummer's rhythm",
    ),
    "computers": (
        "a software update",
        "the laptop keyboard",
        "a hacked password",
        "the Python program",
        "a web browser",
        "the database server",
        "an operating system",
        "his graphics card",
    ),
}
CARRIERS = (
    "On the way home my neighbour told me about {} and then asked how I was.",
    "Nobody said a word for quite a while, until someone mentioned {} again.",
)


@dataclass(frozen=True)
class TopicText:
    """A text, its topic's number in ``TOPICS``, and where the phrase stands, in characters."""

    text: str
    topic: int
    start: int
    end: int


def make_topic_texts() -> list[TopicText]:
    """Every phrase in every sentence around it.

    >>> one = make_topic_texts()[0]
    >>> one.text[one.start : one.end], one.topic
    ('the penalty shoot-out', 0)
    """
    texts = []
    for number, phrases in enumerate(TOPICS.values()):
        for phrase in phrases:
            for carrier in CARRIERS:
                start = carrier.index("{}")
                text = carrier.format(phrase)
                texts.append(TopicText(text, number, start, start + len(phrase)))
    return texts
