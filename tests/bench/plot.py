# SPDX-License-Identifier: BSD-2-Clause
"""The picture of the fio matrix: read throughput and its CPU time by block size, one line a competitor.

Drawn by gnuplot, from the figures of a result, as SVG and as PNG.
"""

import math
import os
import shutil
import subprocess

import fio
from common import NotMeasured
from matrix import READ, SIZES

# Okabe and Ito's colours, which all eyes can tell apart; each line has a form of its points, too.
STYLES = {
    "plain": ("#000000", 4, 1.5, ""),
    "glibc hugetlb=1": ("#E69F00", 8, 1.5, ""),
    "jemalloc thp": ("#56B4E9", 10, 1.5, ""),
    "mimalloc large": ("#009E73", 12, 1.5, ""),
    "memkind thp": ("#777777", 2, 1.5, ""),
    "io_uring": ("#CC79A7", 6, 1.5, "dashtype '-'"),
    "pinshim": ("#0072B2", 5, 3, ""),
    "pinshim+aio": ("#D55E00", 7, 3, ""),
}
NAMES = {"randread": "random reads", "read": "sequential reads"}
# What a row of panels shows, what is written beside it, and whether that is logarithmic.
ROWS = [("gbps", "GB/s (more is better)", False), ("machine_cpu_ms_per_gb", "CPU ms per GB (less is better)", True)]


def quoted(text):
    """A string of gnuplot's."""
    return "'" + text.replace("'", "''") + "'"


def style(variant):
    return STYLES.get(variant) or STYLES["io_uring"]


def variants(figures):
    """Those that were measured, in the order in which they are drawn: ours last, on top."""
    found = {name.split(" variant=")[1].rsplit(" ", 1)[0] for name in figures if name.startswith("matrix ")}
    known = sorted(found - {fio.LIMIT.name}, key=lambda name: list(STYLES.values()).index(style(name)))
    return known


def blocks(figures, names):
    """gnuplot's data: a block of lines, one for each size, for each panel and variant."""
    text = []
    for row, (measure, _, _) in enumerate(ROWS):
        for column, rw in enumerate(READ):
            for number, variant in enumerate(names):
                medians = [figures.get(f"matrix rw={rw} bs={bs} variant={variant} {measure}", {}).get("median", "NaN")
                           for bs in SIZES]
                text += [f"$data_{row}_{column}_{number} << END", *map(str, medians), "END"]
    return text


def axis(figures, names, measure, logarithmic):
    """The same for both panels of a row."""
    medians = [figures[name]["median"] for rw in READ for bs in SIZES for variant in names
               if (name := f"matrix rw={rw} bs={bs} variant={variant} {measure}") in figures]
    least, most = min(medians), max(medians) * 1.1
    if not logarithmic:
        return f"set yrange [0:{most}]"
    return f"set logscale y 10; set yrange [{10 ** math.floor(math.log10(max(least, 0.1)))}:{most}]"


def line(variant, data, title):
    colour, point, width, dashes = style(variant)
    return (f"{data} with linespoints linecolor rgb '{colour}' linewidth {width} pointtype {point} pointsize 0.9 "
            f"{dashes} title {quoted(title)}")


def script(document):
    """All that gnuplot draws, but for where to."""
    figures, machine = document["figures"], document["machine"]
    names = variants(figures)
    text = blocks(figures, names) + [
        "set termoption noenhanced",
        "set multiplot title " + quoted(
            f"fio, O_DIRECT, depth {fio.DEPTH}, one process. {machine['cpu']}, {machine['cores']} cores, "
            f"Linux {machine['kernel'].split('-')[0]}, {machine['filesystem'].split()[0]}, "
            f"{machine['date'].split()[0]}"),
        "set xtics (" + ", ".join(f"'{bs.upper()}' {at}" for at, bs in enumerate(SIZES)) + ")",
        f"set xrange [-0.3:{len(SIZES) - 0.7}]", "set grid ytics linecolor rgb '#DDDDDD' linetype 1", "unset key",
        "set border 3", "set tics nomirror out", "set lmargin 12", "set rmargin 2"]
    for row, (measure, label, logarithmic) in enumerate(ROWS):
        text.append(axis(figures, names, measure, logarithmic))
        for column, rw in enumerate(READ):
            text += [f"set origin {column * 0.5},{0.52 - row * 0.41}", "set size 0.5,0.41", f"set ylabel {quoted(label)}",
                     f"set title '{NAMES[rw]}'" if row == 0 else "unset title",
                     f"set xlabel '{'block size' if row else ''}'",
                     "plot " + ", ".join(line(variant, f"$data_{row}_{column}_{number} using 0:1", "")
                                         for number, variant in enumerate(names))]
    text += ["set origin 0,0", "set size 1,0.11", "unset border", "unset tics", "unset xlabel", "unset ylabel",
             "unset logscale", "unset title", "set yrange [0:1]", "set lmargin 2", "set rmargin 2",
             "set key center center horizontal reverse Left maxrows 2 samplen 3 width 3",
             "plot " + ", ".join(line(variant, "NaN", variant) for variant in names), "unset multiplot"]
    return "\n".join(text) + "\n"


def draw(document, path):
    """path.svg and path.png. NotMeasured says why there is no picture."""
    if not any(name.startswith("matrix rw=read ") for name in document["figures"]):
        raise NotMeasured("the group matrix was not measured")
    if not shutil.which("gnuplot"):
        raise NotMeasured("gnuplot is missing (scripts/setup --bench)")
    body = script(document)
    for terminal, kind in (("svg size 900,760 dynamic background rgb 'white' font 'sans-serif,13'", "svg"),
                           ("pngcairo size 1800,1520 fontscale 2 linewidth 2 pointscale 2 font 'sans,11'", "png")):
        new = f"{path}.{kind}.new"
        gnuplot = subprocess.run(["gnuplot"], input=f"set terminal {terminal}\nset output '{new}'\n{body}",
                                 capture_output=True, text=True, check=False)
        if gnuplot.returncode or not os.path.exists(new):
            raise NotMeasured(f"gnuplot: {gnuplot.stderr.strip() or 'drew nothing'}")
        os.replace(new, f"{path}.{kind}")
