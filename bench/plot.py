"""Draws what `bench.gpu` measured, for the README.

    python -m bench.gpu --autotune --json gpu.json
    python -m bench.plot gpu.json                  writes docs/gpu.png
    python -m bench.plot gpu.json -o other.png

Needs matplotlib: `pip install -e ".[bench]"`. Each workload's times stand over its floor, so that
bars of a second and of a microsecond compare; what is far away is cut off and says how far.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BARS = {
    "eager": ("eager", "#c9ccd1"),
    "compile": ("torch.compile", "#8fb4dd"),
    "autotune": ("torch.compile, max-autotune", "#3f6ea8"),
    "jit": ("srcjit.jit", "#f2a541"),
    "jit autotune": ("srcjit.jit, max-autotune", "#c5651b"),
}
"""Competitor -> its name and colour, in order."""

FURTHEST = 5.0
"""Times the floor at which bars are cut off."""


def draw(measured: dict[str, Any], names: Sequence[str], file: Path) -> None:
    """Draws the bars of some workloads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = {r["workload"]: r for r in measured["rows"]}
    found = [n for n in (names or rows) if "floor" in rows[n]]
    shown = {c: bar for c, bar in BARS.items() if any(c in rows[n] for n in found)}
    height = 0.8 / len(shown)
    figure, axes = pyplot.subplots(figsize=(8.5, 0.55 * len(found) + 1.2))
    for place, (competitor, (label, colour)) in enumerate(shown.items()):
        offset = (place - (len(shown) - 1) / 2) * height
        for at, name in enumerate(found):
            time, floor = rows[name].get(competitor), rows[name]["floor"]
            if time is None:
                continue
            ratio = time / floor
            axes.barh(
                at + offset,
                min(ratio, FURTHEST),
                height,
                color=colour,
                label=label if at == 0 else None,
            )
            if ratio > FURTHEST:
                axes.text(
                    FURTHEST + 0.03,
                    at + offset,
                    f"{ratio:.1f}",
                    ha="left",
                    va="center_baseline",
                    fontsize=5.5,
                )
    axes.vlines(1.0, -0.5, len(found) - 0.5, color="black", linewidth=0.8)
    axes.set_xlim(0, FURTHEST)
    axes.set_ylim(len(found) - 0.5, -1.1)
    axes.set_yticks(range(len(found)), [n.replace("_", " ") for n in found], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(
        "time / floor (bytes that must move over the bandwidth of a copy, "
        "or operations over the rate of a product)",
        fontsize=7,
    )
    version = ".".join(str(measured["torch"]).split("+")[0].split(".")[:2])
    axes.set_title(
        f"{measured['device']}, torch {version}: shorter is better", fontsize=9
    )
    axes.legend(
        fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 1.0), ncol=5, frameon=False
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("measured", type=Path, help="what --json wrote")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/gpu.png"))
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    options = parser.parse_args()
    names = [n for n in options.only.split(",") if n]
    draw(json.loads(options.measured.read_text()), names, options.output)


if __name__ == "__main__":
    main()
