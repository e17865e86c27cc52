"""Random data files, read by `datasets` and by axtrain: the records must be equal, or axtrain must refuse the file.

usage: rows_random.py ROWS_TOOL [--seed N] [--files N] [--keep]

CSV, TSV, JSON, JSON lines, text and Parquet, plain or compressed. What docs/data-formats.md says to be different is no
difference: fields of CSV are texts here, and numbers, or nothing, in datasets, which takes words such as NA for nothing; blank
lines of text are no records; NaN and infinities are null; times are texts. A carriage return outside of quotes ends a line in datasets,
and is not drawn; columns of which DuckDB would rename one, and what we do not unpack, are rare. datasets fills a record up with the columns of others.
Exit code 1 at a difference, whose file is kept. Needs: datasets.
"""
import argparse
import csv
import datetime
import decimal
import gzip
import io
import json
import lzma
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile

os.environ.update(HF_HUB_OFFLINE="1")
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from datasets import disable_progress_bars, load_dataset  # noqa: E402
from datasets.utils.logging import set_verbosity  # noqa: E402

WORDS = ["cat", "the", "don't", 'say "hi"', "a,b", "c;d", "e|f", "tab\there", "line\nend", "cr\rhere", "crlf\r\nend", "é", "日本", "😀", "\u2028", "\x85",
         "\\", "\\n", "{x}", "[1]", "'", '"', " ", "  lead", "trail  ", "#", "0", "007", "1.50", "NA", "null", "None", "nan", "true", "-", "\x1f", "\x0b"]
NOTHING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN",
           "None", "n/a", "nan", "null"}  # of pandas
NAMES = ["text", "Text", "prompt", "messages", "r", "R", "id", "a b", "a.b", "x,y", 'q"q', "é", "label", "filename", "index", "0", "row"]


def text(r, words=None):
    return r.choice(("", " ", "")).join(r.choice(words or WORDS) for _ in range(r.choice((0, 1, 1, 1, 2, 3, 9, 60))))


def columns(r, names=NAMES):
    """Two of which differ in case in few."""
    drawn = r.sample(names, r.randint(1, 5))
    return drawn if r.random() < 0.03 else list({n.lower(): n for n in drawn}.values())


# ---- files ----

def make_csv(r, tabs):
    """Columns of one kind each, as datasets has one type for a column; two or more, as otherwise blank lines would be records."""
    words = [w for w in WORDS if "\r" not in w]
    sep = "\t" if tabs else r.choice((",", ",", ";", "|"))
    names = columns(r, [n for n in NAMES if "," not in n]) + ["last"]
    kinds = [r.choice(("text", "text", "text", "int", "float", "bool", "mixed")) for _ in names]
    out = io.StringIO()
    w = csv.writer(out, delimiter=sep, lineterminator=r.choice(("\n", "\r\n")), quoting=r.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
    w.writerow(names)

    def field(kind):
        return {"int": lambda: r.choice((r.randint(-9, 99), 10**15, "")), "float": lambda: r.choice((r.random(), 1e-9, -2.5, "")),
                "bool": lambda: r.choice(("True", "False")), "mixed": lambda: r.choice((text(r, words), r.randint(0, 9), ""))}.get(kind, lambda: text(r, words))()
    for _ in range(r.randint(1, 30)):
        w.writerow([field(k) for k in kinds])
    body = out.getvalue()
    return ("\ufeff" if r.random() < 0.2 else "") + (body if r.random() < 0.8 else body.rstrip("\r\n")), {"sep": sep}


def value(r, depth=0):
    kind = r.choice(("text", "text", "int", "float", "bool", "null", "list", "texts", "object") if depth < 3 else ("text", "int"))
    if kind in ("list", "object"):
        make = maker(r, depth)
        return (lambda: [make() for _ in range(r.randint(0, 4))]) if kind == "list" else make
    return {"text": lambda: text(r), "int": lambda: r.choice((r.randint(-5, 5), 2**53 + 1, -2**63, 2**63 - 1)),
            "float": lambda: r.choice((r.random(), 1e300, -0.5, 1e-7, 3.0)), "bool": lambda: r.random() < 0.5, "null": lambda: None,
            "texts": lambda: [text(r) for _ in range(r.randint(0, 3))]}[kind]


def maker(r, depth=0):
    """Makes objects of the same columns and types, some of whose values are null or missing."""
    makers = {n: value(r, depth + 1) for n in columns(r)}

    def make():
        row = {n: None if r.random() < 0.1 else m() for n, m in makers.items()}
        return {n: v for n, v in row.items() if r.random() > 0.07} or row
    return make


def make_json(r, lines):
    make = maker(r)
    rows = [make() for _ in range(r.randint(1, 30))]
    ascii_only, end = r.random() < 0.5, r.choice(("\n", "\n", "\r\n"))
    if lines:
        body = end.join(json.dumps(x, ensure_ascii=ascii_only) for x in rows) + r.choice(("", end))
    else:
        body = json.dumps(rows, ensure_ascii=ascii_only, indent=r.choice((None, 0, 2)))
    return ("\ufeff" if r.random() < 0.1 else "") + body, {}


def make_text(r):
    lines = [text(r, [w for w in WORDS if w not in ("line\nend", "crlf\r\nend", "cr\rhere")]) for _ in range(r.randint(1, 40))]
    return r.choice(("\n", "\r\n")).join(lines) + r.choice(("", "\n")), {}


def arrow_type(r, depth=0):
    """A type, and what makes a value of it."""
    def at(most):
        return datetime.datetime(2020, 1, 1) + datetime.timedelta(microseconds=r.randint(0, most))
    kinds = {"text": (pa.string(), lambda: text(r)), "large": (pa.large_string(), lambda: text(r)), "i8": (pa.int8(), lambda: r.randint(-128, 127)),
             "i64": (pa.int64(), lambda: r.choice((0, -2**63, 2**63 - 1, 7))), "u32": (pa.uint32(), lambda: r.randint(0, 2**32 - 1)),
             "u64": (pa.uint64(), lambda: r.randint(0, 2**63 - 1)),
             "f32": (pa.float32(), lambda: r.choice((0.5, -1e30, 0.1, math.nan, math.inf))), "f64": (pa.float64(), lambda: r.choice((r.random(), 1e300, -math.inf))),
             "bool": (pa.bool_(), lambda: r.random() < 0.5), "null": (pa.null(), lambda: None), "day": (pa.date32(), lambda: at(10**14).date()),
             "time": (pa.timestamp(r.choice(("s", "ms", "us", "ns"))), lambda: at(10**14).replace(microsecond=0)),
             "decimal": (pa.decimal128(18, 2), lambda: decimal.Decimal(r.randint(-10**9, 10**9)).scaleb(-2)),
             "wide": (pa.decimal256(50, 2), lambda: decimal.Decimal(r.randint(-10**9, 10**9)).scaleb(-2)),
             "dictionary": (pa.dictionary(pa.int32(), pa.string()), lambda: r.choice(WORDS))}
    kind = r.choice(list(kinds) * 2 + ["texts"] * 4 + ["list", "struct"] * (4 if depth < 3 else 0)) if r.random() > 0.3 else "text"
    if kind == "wide" and r.random() < 0.9:
        kind = "text"
    if kind == "texts":
        return pa.list_(pa.string()), lambda: [text(r) for _ in range(r.randint(0, 3))]
    if kind == "list":
        of, make = arrow_type(r, depth + 1)
        if pa.types.is_dictionary(of):
            of = pa.string()
        return r.choice((pa.list_, pa.large_list))(of), lambda: [make() for _ in range(r.randint(0, 4))]
    if kind == "struct":
        fields = {n: arrow_type(r, depth + 1) for n in columns(r)}
        fields = {n: (pa.string() if pa.types.is_dictionary(t) else t, m) for n, (t, m) in fields.items()}
        return pa.struct([(n, t) for n, (t, m) in fields.items()]), lambda: {n: m() for n, (t, m) in fields.items()}
    return kinds[kind]


def make_parquet(r, path):
    fields = {n: arrow_type(r) for n in columns(r)}
    n = r.randint(1, 60)
    table = pa.table({k: pa.array([None if r.random() < 0.1 else make() for _ in range(n)], of) for k, (of, make) in fields.items()})
    pq.write_table(table, path, row_group_size=r.choice((1, 7, 100)), compression=r.choice(("zstd", "snappy", "gzip", "brotli", "lz4", "none")),
                   use_dictionary=r.random() < 0.5, data_page_version=r.choice(("1.0", "2.0")), version=r.choice(("1.0", "2.4", "2.6")))


def write(r, path, body):
    """Compressed in some; returns the path."""
    packing = r.choice(("",) * 9 + (".gz",) * 4 + (".zst",) * 4 + (".xz", ".zip"))
    data = body.encode()
    if packing == ".gz":
        data = gzip.compress(data)
    elif packing == ".xz":
        data = lzma.compress(data)
    elif packing == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    elif packing == ".zip":
        with zipfile.ZipFile(path + packing, "w") as z:
            z.writestr(os.path.basename(path), data)
        return path + packing
    with open(path + packing, "wb") as f:
        f.write(data)
    return path + packing


# ---- comparing ----

def same_field(ours, theirs):
    """Of CSV."""
    if theirs is None or (isinstance(theirs, float) and math.isnan(theirs)):
        return ours in NOTHING
    if isinstance(theirs, bool):
        return ours.lower() == str(theirs).lower()
    return math.isclose(float(ours), theirs, rel_tol=1e-12) if isinstance(theirs, (int, float)) else ours == theirs


def same(ours, theirs):
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and not set(ours) - set(theirs) and all(same(ours.get(k), v) for k, v in theirs.items())
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, (datetime.datetime, datetime.date)):
        return ours == str(theirs)
    if isinstance(theirs, float) and not math.isfinite(theirs):
        return ours is None
    if isinstance(theirs, (float, decimal.Decimal)):  # pandas reads JSON's with ten digits
        return type(ours) in (int, float) and math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return type(ours) is type(theirs) and ours == theirs


def by_datasets(kind, path, options, cache):
    if path.endswith(".zst"):  # not for it
        with open(path, "rb") as f, open(path[:-4], "wb") as to:
            to.write(pa.input_stream(f, compression="zstd").read())
        path = path[:-4]
    name = {"tsv": "csv", "jsonl": "json", "txt": "text"}.get(kind, kind)
    return load_dataset(name, data_files=path, split="train", cache_dir=cache, **options).to_list()


def compare(tool, kind, path, options, cache):
    """What differs; None: nothing; and who refuses."""
    p = subprocess.run([tool, path], capture_output=True)
    try:
        theirs = by_datasets(kind, path, options, cache)
    except Exception as e:
        return None, f"datasets: {type(e).__name__}: {str(e.__cause__ or e)[:150]}"
    if p.returncode:
        return None, "axtrain: " + p.stderr.decode().strip()
    ours = [json.loads(line) for line in p.stdout.decode().split("\n")[:-1]]
    if kind == "txt":
        theirs = [x for x in theirs if x["text"].strip(" \t\r")]
    if len(ours) != len(theirs):
        return f"{len(ours)} records, in datasets {len(theirs)}", None
    for i, (a, b) in enumerate(zip(ours, theirs)):
        fields = kind in ("csv", "tsv")
        if not (set(a) == set(b) and all(same_field(a[k], v) for k, v in b.items()) if fields else same(a, b)):
            return f"record {i + 1}: {a}\n  in datasets {b}", None
    return None, None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tool", type=os.path.abspath)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--files", type=int, default=150)
    p.add_argument("--only")
    p.add_argument("--keep", action="store_true")
    a = p.parse_args()
    disable_progress_bars()
    set_verbosity(50)
    work = tempfile.mkdtemp(prefix="rows-random-")
    different, refused = 0, {}
    for i in range(a.files):
        r = random.Random(f"{a.seed} {i}")
        kind = a.only or r.choice(("csv", "tsv", "json", "jsonl", "txt", "parquet", "parquet"))
        path, options = os.path.join(work, f"f{i}.{kind}"), {}
        if kind == "parquet":
            make_parquet(r, path)
        else:
            body, options = {"csv": lambda: make_csv(r, False), "tsv": lambda: make_csv(r, True), "json": lambda: make_json(r, False),
                             "jsonl": lambda: make_json(r, True), "txt": lambda: make_text(r)}[kind]()
            path = write(r, path, body)
        bad, why = compare(a.tool, kind, path, options, os.path.join(work, "cache"))
        if bad:
            different += 1
            print(f"{path}: {bad}", flush=True)
        elif why:
            refused[i] = why
            print(f"{path}: refused by {why}", flush=True)
        if not bad and not a.keep:
            os.remove(path)
        shutil.rmtree(os.path.join(work, "cache"), ignore_errors=True)
    print(f"seed {a.seed}: {a.files - different - len(refused)} of {a.files} files equal, {different} different, {len(refused)} refused")
    if not different and not a.keep:
        shutil.rmtree(work)
    return different > 0 or 2 * len(refused) > a.files


if __name__ == "__main__":
    sys.exit(main())
