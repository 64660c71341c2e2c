"""Trains a classifier of wines and writes it as a model repository.

    python examples/tabular/build.py FOLDER

The data is scikit-learn's own: 178 Italian wines of three growers, 13 measurements of each.
"""

import sys
from pathlib import Path

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skops import io


def main() -> None:
    """Train, say how well it does on wines not trained on, and save."""
    wines = load_wine()
    train_x, test_x, train_y, test_y = train_test_split(
        wines.data, wines.target, test_size=0.25, random_state=0, stratify=wines.target
    )
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    classifier.fit(train_x, train_y)
    print(f"trained: {classifier.score(test_x, test_y):.0%} of {len(test_y)} other wines are right")
    folder = Path(sys.argv[1]) / "wine" / "1"
    folder.mkdir(parents=True)
    io.dump(classifier, folder / "model.skops")


if __name__ == "__main__":
    main()
