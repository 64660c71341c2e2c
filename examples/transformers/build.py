"""Makes a pipeline of Hugging Face's transformers and puts it beside the model that runs it.

    python examples/transformers/build.py FOLDER

The pipeline is a BERT of a few hundred numbers that learns here, in a second, what eight words
mean, so nothing is downloaded. A real one: `pipeline("text-classification", model="...")`.
"""

import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

SENTIMENT = Path(__file__).parent / "sentiment"
GOOD = ("good", "great", "fine", "lovely")
BAD = ("bad", "awful", "poor", "boring")
WORDS = ("[PAD]", "[UNK]", "a", "an", "film", "this", "is", *GOOD, *BAD)
LABELS = {0: "NEGATIVE", 1: "POSITIVE"}
STEPS = 60


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )


def train(tokenizer: PreTrainedTokenizerFast) -> BertForSequenceClassification:
    """Return a classifier that has read two sentences with each word."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
        id2label=LABELS,
        label2id={label: number for number, label in LABELS.items()},
    )
    model = BertForSequenceClassification(config).train()
    texts = [text for word in GOOD + BAD for text in (f"a {word} film", f"this film is {word}")]
    labels = torch.tensor([1] * (2 * len(GOOD)) + [0] * (2 * len(BAD)))
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(STEPS):
        loss = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    """Write the model `sentiment` with its pipeline."""
    folder = Path(sys.argv[1]) / "sentiment"
    shutil.copytree(SENTIMENT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    tokenizer = make_tokenizer()
    made = pipeline("text-classification", model=train(tokenizer), tokenizer=tokenizer)
    made.save_pretrained(folder / "1" / "pipeline")


if __name__ == "__main__":
    main()
