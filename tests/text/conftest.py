"""A classifier and a language model of random weights, each with its tokenizer."""

import pytest

from sea_nn import SEA
from tests.helpers.texts import (
    make_byte_tokenizer,
    make_classifier,
    make_language_model,
    make_tokenizer,
)


@pytest.fixture(scope="package")
def parts():
    return make_classifier(), make_tokenizer()


@pytest.fixture(scope="package")
def speaker():
    return make_language_model(), make_byte_tokenizer()


@pytest.fixture(scope="package")
def reader(parts):
    """The classifier, explained with a small budget."""
    return SEA.for_text(*parts, budget=20)
