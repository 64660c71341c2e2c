"""Learns a tokenizer and vectors of its tokens, and writes them as models.

    pip install tokenizers onnx
    python examples/text_search/train.py

The text is the reference of the language that every Python brings along (`help("topics")`). Tokens
of the same paragraphs get like vectors: latent semantic analysis, the largest eigenvectors
of what tokens have in common. Written by CPython 3.11; other versions have other texts.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

MODELS = Path(__file__).parent / "models"
TOKENS = 2500
WIDTH = 40
TINY = 1e-9
UNKNOWN, PADDING = "[UNK]", "[PAD]"


def paragraphs() -> Iterator[str]:
    """Yield what the topics say, without lines of code."""
    for topic in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[topic]):
            if not re.search(r"::=|>>>|\*{4}|={4}", paragraph):
                yield " ".join(paragraph.split())


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Return a tokenizer like BERT's: lower case, words cut into pieces that the vocabulary has."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=TOKENS, special_tokens=[PADDING, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def learn_vectors(texts: list[list[int]], count: int) -> np.ndarray:
    """Return a vector for each token, float32 [count, WIDTH], the longer the rarer it is."""
    counts = np.zeros((len(texts), count))
    for row, ids in zip(counts, texts, strict=True):
        np.add.at(row, ids, 1)
    rarity = np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))
    counts = np.log1p(counts) * rarity
    counts /= np.linalg.norm(counts, axis=1, keepdims=True) + TINY
    _, vectors = np.linalg.eigh(counts.T @ counts)
    found = vectors[:, -WIDTH:]  # those of the largest eigenvalues
    found = found / (np.linalg.norm(found, axis=1, keepdims=True) + TINY)
    return (found * rarity[:, None]).astype(np.float32)


def encoder(vectors: np.ndarray) -> onnx.ModelProto:
    """Return a model that adds the vectors of a text's tokens and gives the sum the length 1."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["vectors", "ids"], ["found"]),
            helper.make_node("Cast", ["found"], ["each"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["real", "last"], ["counts"]),
            helper.make_node("Mul", ["each", "counts"], ["counted"]),
            helper.make_node("ReduceSum", ["counted", "one"], ["sum"], keepdims=0),
            helper.make_node("LpNormalization", ["sum"], ["embedding"], axis=1, p=2),
        ],
        "encode",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "LENGTH"])
            for name in ("ids", "mask")
        ],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", WIDTH])],
        [
            numpy_helper.from_array(vectors.astype(np.float16), "vectors"),
            numpy_helper.from_array(np.array([1]), "one"),
            numpy_helper.from_array(np.array([2]), "last"),
        ],
    )
    model = helper.make_model(
        graph, producer_name="inferd", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Learn and write."""
    texts = list(paragraphs())
    tokenizer = train_tokenizer(texts)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    vectors = learn_vectors(ids, tokenizer.get_vocab_size())
    print(f"learned {len(vectors)} tokens from {sum(map(len, ids))} of {len(texts)} paragraphs")
    tokenizer.save(str(MODELS / "tokenize" / "1" / "tokenizer.json"), pretty=False)
    content = encoder(vectors).SerializeToString(deterministic=True)
    (MODELS / "encode" / "1" / "model.onnx").write_bytes(content)


if __name__ == "__main__":
    main()
