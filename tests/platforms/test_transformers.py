"""The example of a Hugging Face pipeline, on a model of random weights that is made here."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers" / "sentiment"
WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "a"]
TEXTS = ["a good film", "bad", "unknown", "good good bad"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The example beside a pipeline of a few hundred numbers."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(EXAMPLE, folder / "sentiment")
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=32, id2label={0: "NEGATIVE", 1: "POSITIVE"},
    )  # fmt: skip
    target = folder / "sentiment" / "1" / "pipeline"
    BertForSequenceClassification(config).eval().save_pretrained(target)
    fast.save_pretrained(target)
    return folder


def test_a_pipeline_is_served(repository, serve):
    target = repository / "sentiment" / "1" / "pipeline"
    expected = pipeline("text-classification", model=str(target))(TEXTS)
    with serve(repository) as server:
        url = f"127.0.0.1:{server.http_port}"
        with tritonclient.http.InferenceServerClient(url) as client:
            text = tritonclient.http.InferInput("text", (4, 1), "BYTES")
            text.set_data_from_numpy(np.array([[t.encode()] for t in TEXTS], object))
            answer = client.infer("sentiment", [text])
    labels = [label.decode() for label in answer.as_numpy("label").ravel()]
    assert labels == [one["label"] for one in expected]
    scores = [one["score"] for one in expected]
    np.testing.assert_allclose(answer.as_numpy("score").ravel(), scores, atol=1e-5)
