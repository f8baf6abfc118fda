"""Tiny text models with random weights, and tokenizers built on the spot: nothing is fetched."""

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="text needs transformers")
tokenizers = pytest.importorskip("tokenizers", reason="text needs tokenizers")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("good", "bad", "film", "plot", "not", "very", "the", "was", "act", "##ing", "##s")
MARKS = (".", ",", "!", "?")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXT = "the film was not bad , very good acting !"
SHORT = "film was not bad"


def make_tokenizer(mask=True, length=64):
    """Word pieces, as BERT has them: single letters are known, so any word is."""
    known = [*SPECIAL, *WORDS, *MARKS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {word: k for k, word in enumerate(known)}
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    pair = [("[CLS]", 2), ("[SEP]", 3)]
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=pair
    )
    named = {"mask_token": "[MASK]"} if mask else {}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=length,
        **named,
    )


def _draw(make, config, spread):
    """A model whose weights are spread more than its own start has them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make(config)
        for weight in model.parameters():
            weight.data += spread * torch.randn_like(weight)
    return model.eval()


def make_classifier(n_labels=3, **options):
    """A BERT of two layers; its last layer is enlarged, so that words change what it says."""
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, num_labels=n_labels, **options,
    )  # fmt: skip
    return _draw(transformers.BertForSequenceClassification, config, 0.3)


def make_byte_tokenizer():
    """Byte-level pieces, as GPT-2 has them: a word begins with its space; no token is added."""
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator([f"{TEXT} {TEXT}", " ".join(WORDS)], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|end|>", eos_token="<|end|>", unk_token="<|end|>"
    )


def make_language_model():
    """A GPT-2 of two layers."""
    config = transformers.GPT2Config(
        vocab_size=320, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return _draw(transformers.GPT2LMHeadModel, config, 0.2)
