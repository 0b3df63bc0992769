"""Makes known.json: what NumPy, SciPy and statsmodels say of data that are known.

    python3 -m venv venv && venv/bin/pip install numpy scipy statsmodels
    venv/bin/python make.py > known.json

Made with numpy 2.4.6, scipy 1.17.1 and statsmodels 0.15.0. Jain's index is in none of them; it is
written out from its definition (Jain, Chiu and Hawe, 1984).
"""

import json
import warnings

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

# As `RESAMPLES` of the statistics checked: the ends of an interval of so few resamples have an
# error, which is said as the quantiles between which they lie.
RESAMPLES = 4000
TAIL = 0.025
SIGMAS = 4

rng = np.random.default_rng(20)
heavy = lambda n: np.round(1e6 * np.exp(0.1 * rng.standard_t(2, n)), 1)

SAMPLES = {
    "one": [3.5],
    "two": [3.0, 1.0],
    "ties": [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0],
    "zeros": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    "signs": [-3.25, 0.0, 1e-3, 2.5, 1e3, -7.0, 4.0, 4.0],
    # One that other work on the machine hit.
    "hit": [1.02e7, 9.8e6, 1.0e7, 2.1e5, 9.9e6, 1.05e7, 1.01e7, 9.7e6],
    "heavy": heavy(30).tolist(),
    "many": heavy(200).tolist(),
}

PAIRS = {
    "apart": ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]),
    "alike": ([1.0, 4.0, 5.0, 8.0], [2.0, 3.0, 6.0, 7.0]),
    "ties": ([1.0, 1.0, 2.0, 3.0, 3.0, 3.0], [1.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0]),
    "uneven": ([0.0, 0.0, 0.0, 9.0], [0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 8.0]),
    "heavy": (heavy(8).tolist(), np.round(heavy(8) * 1.3, 1).tolist()),
    "larger": (heavy(20).tolist(), np.round(heavy(25) * 1.05, 1).tolist()),
}

P_VALUES = [
    [0.01, 0.04, 0.03, 0.005],
    [0.5, 0.6, 0.9],
    [0.02, 0.02, 0.02, 0.02, 1.0],
    np.round(rng.uniform(0, 0.2, 12), 6).tolist(),
]

SHARES = [[5, 5, 5], [1, 3], [0, 4], [100, 90, 5, 0, 7], [2**53, 1, 2**40]]


def known(value):
    return None if np.isnan(value) else float(value)


def one(samples):
    x = np.array(samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interval = stats.quantile_test(x, q=0, p=0.5).confidence_interval(0.95)
        stddev = np.std(x, ddof=1)
    distance = stats.median_abs_deviation(np.log(x) if (x > 0).all() else x)
    scaled = np.log(x) if (x > 0).all() else x
    scores = None if distance == 0 else (0.6745 * (scaled - np.median(scaled)) / distance).tolist()
    return {
        "samples": samples,
        "min": float(x.min()),
        "max": float(x.max()),
        "median": float(np.median(x)),
        "mean": float(x.mean()),
        "stddev": known(stddev),
        "quartiles": np.quantile(x, [0.25, 0.75]).tolist(),
        "interval": None if np.isnan(interval.low) else [float(interval.low), float(interval.high)],
        "bootstrap": bootstrap((x,), np.median) if len(x) >= 6 else None,
        "scores": scores,
    }


def rank_sum(a, b):
    """All ways to share out the ranks for few, else the distribution without ties."""
    ranks = stats.rankdata(np.concatenate([a, b]))
    if len(ranks) > 20:
        assert len(set(ranks)) == len(ranks)
        return float(stats.mannwhitneyu(a, b, method="exact").pvalue)
    centre = len(a) * (len(ranks) + 1) / 2
    result = stats.permutation_test(
        (ranks[: len(a)], ranks[len(a) :]),
        lambda x, y, axis: abs(x.sum(axis=axis) - centre),
        alternative="greater",
        n_resamples=np.inf,
        vectorized=True,
    )
    return float(result.pvalue)


def bootstrap(data, statistic):
    result = stats.bootstrap(
        data, statistic, method="percentile", n_resamples=400_000, batch=20_000, rng=3
    )
    error = SIGMAS * np.sqrt(TAIL * (1 - TAIL) / RESAMPLES)
    ends = lambda p: np.quantile(result.bootstrap_distribution, [p - error, p + error]).tolist()
    return {
        "interval": [float(end) for end in result.confidence_interval],
        "low_within": ends(TAIL),
        "high_within": ends(1 - TAIL),
    }


def ratio(a, b):
    statistic = lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis)
    return {"value": float(np.median(a) / np.median(b)), **bootstrap((a, b), statistic)}


def two(a, b):
    enough = min(len(a), len(b)) >= 6 and np.median(b) > 0
    return {
        "a": a,
        "b": b,
        "rank_sum": rank_sum(a, b),
        "ratio": ratio(a, b) if enough else None,
    }


def holm(p):
    return {"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()}


def jain(shares):
    x = np.array(shares, dtype=float)
    return {"shares": shares, "jain": float(x.sum() ** 2 / (len(x) * (x**2).sum()))}


made = {
    "samples": {name: one(samples) for name, samples in SAMPLES.items()},
    "pairs": {name: two(*pair) for name, pair in PAIRS.items()},
    "holm": [holm(p) for p in P_VALUES],
    "fairness": [jain(shares) for shares in SHARES],
}
print(json.dumps(made).replace("}, ", "},\n"))
