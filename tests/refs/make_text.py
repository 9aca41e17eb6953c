#!/usr/bin/env python3
"""Small text files and what other readers make of them, for tests/test_data_text.c and test_data_csv.c;
and the seeds of the fuzz targets libsvm, csv and input.

usage: make_text.py          needs numpy, scipy, scikit-learn and the program zstd; writes text/ beside
                             itself and ../fuzz/corpus/{libsvm,csv,input}

small.svm, small.txt      libsvm text in odd but valid forms; scikit-learn's load_svmlight_file of it
quotes.csv, quotes.txt    CSV with quotes, BOM, CRLF; the cells by Python's csv module
table*.csv, table*.txt    numbers, categories, missing values; scikit-learn's StandardScaler (population),
                          SimpleImputer and OneHotEncoder of it, with the indicators of unseen categories
                          and of ten or more missing numbers
lines.txt, .gz, .zst      the same bytes plain, as two gzip members and as two zstd frames
"""
import csv
import gzip
import io
import os
import subprocess
import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

here = os.path.dirname(os.path.abspath(__file__))
text = os.path.join(here, "text")
corpus = os.path.join(here, "..", "fuzz", "corpus")
random = np.random.default_rng(20240607)


def write(folder, name, content):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def matrix(labels, x):
    """rows, columns, then per row the label and the values"""
    lines = ["%d %d" % x.shape]
    for y, row in zip(labels, x):
        lines.append(" ".join([str(y)] + ["%.9g" % v for v in row]))
    return "\n".join(lines) + "\n"


def libsvm():
    forms = ["%d:%.6g", "%d:%.9g", "%d:%+.3e", "%d:%.1f", "%d:%.12E"]
    rows = []
    for i in range(60):
        columns = np.sort(random.choice(40, size=random.integers(0, 12), replace=False)) + 1
        words = [forms[random.integers(len(forms))] % (c, random.normal() * 10.0 ** random.integers(-8, 8))
                 for c in columns]
        label = ["-1", "1", "+1", "3", "10"][random.integers(5)]
        rows.append(label + "".join([" ", "  ", "\t"][random.integers(3)] + w for w in words)
                    + ["", " ", "\r", " # a comment", "\t"][random.integers(5)])
        if i % 10 == 3:
            rows.append(["", "# only a comment", "   ", "\t\r"][random.integers(4)])
    rows.append("1 2:0 7:-0 40:5.")
    content = "\n".join(rows)  # no newline at the end
    write(text, "small.svm", content)
    x, y = load_svmlight_file(os.path.join(text, "small.svm"), n_features=40)
    classes = sorted(set(y))
    write(text, "small.txt", matrix([classes.index(v) for v in y], x.toarray()))


def quotes():
    rows = [["a", "b,c", 'say "yes"', "", "two\nlines", " kept ", "\u00e9"],
            ["1", '"', "x" * 50, ",", "\r\n", "", "end"],
            ["", "", "", "", "", "", ""],
            ['""', "'", "5' 3\"", "\t", "a\tb", "-", "."]]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows(rows)
    body = out.getvalue() + 'plain,words with  spaces ,5" pipe, "quoted" ,,"",last'
    write(text, "quotes.csv", b"\xef\xbb\xbf" + body.encode())
    cells = list(csv.reader(io.StringIO(body, newline=""), skipinitialspace=True))
    assert cells[:4] == rows
    cells[4] = [c.strip() for c in cells[4]]  # ours trims what is not quoted
    write(text, "quotes.txt", "".join(
        c.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") + "\n" for r in cells for c in r))


def table():
    names = ["age", "town", "income", "kind", "flat", "y"]
    towns = ["Bern", "aarau", "Zug", "Chur", "\u00c4sch"]

    def rows(n, test):
        out = []
        for i in range(n):
            out.append([random.choice(["%d" % random.integers(18, 90), "?", ""], p=[0.8, 0.1, 0.1]),
                        random.choice(towns + (["Rome", "?"] if test else [])),
                        "%.4g" % random.lognormal(8, 2),
                        random.choice(["x", "7", "y", "NA", "nan"]) if not (test and i == 0) else "new",
                        "3.5",
                        random.choice(["no", "yes", "maybe"])])
        return out

    train, test = rows(50, False), rows(20, True)
    for name, body, head in (("table.csv", train, True), ("table-test.csv", test, False)):
        write(text, name, "\n".join(", ".join(r) for r in ([names] if head else []) + body) + "\n")

    missing = {"", "?", "NA", "nan"}
    blocks = {"table.txt": [], "table-test.txt": []}
    for k in range(5):
        def column(body):
            return np.array([r[k] for r in body], dtype=object).reshape(-1, 1)
        if k in (0, 2, 4):
            def numbers(body):
                return np.array([[np.nan if v in missing else float(v)] for v in column(body)[:, 0]])
            # the imputed cells must not move the mean or the deviation
            scale = StandardScaler().fit(numbers(train)[~np.isnan(numbers(train)[:, 0])])
            fill = SimpleImputer().fit(numbers(train))
            marked = np.isnan(numbers(train)).sum() >= 10
            for name, body in (("table.txt", train), ("table-test.txt", test)):
                blocks[name].append(scale.transform(fill.transform(numbers(body))))
                if marked:
                    blocks[name].append(np.isnan(numbers(body)).astype(float))
            continue
        seen = sorted({v for v in column(train)[:, 0] if v not in missing}, key=lambda v: v.encode())
        gone = any(v in missing for v in column(train)[:, 0])
        levels = seen + (["(missing)"] if gone else [])
        one = OneHotEncoder(categories=[np.array(levels, dtype=object)], handle_unknown="ignore",
                            sparse_output=False)
        one.fit(np.array(levels, dtype=object).reshape(-1, 1))
        for name, body in (("table.txt", train), ("table-test.txt", test)):
            cells = np.array([["(missing)" if v in missing else v] for v in column(body)[:, 0]], dtype=object)
            hot = one.transform(cells)
            blocks[name] += [hot, 1 - hot.sum(axis=1, keepdims=True)]
    classes = sorted({r[5] for r in train})
    for name, body in (("table.txt", train), ("table-test.txt", test)):
        write(text, name, matrix([classes.index(r[5]) for r in body], np.hstack(blocks[name])))


def packed():
    lines = "".join("line %d %s\n" % (i, "x" * (i * 7 % 61)) for i in range(300)).encode()
    half = len(lines) // 2
    write(text, "lines.txt", lines)
    gz = b"".join(gzip.compress(part, mtime=0) for part in (lines[:half], lines[half:]))
    write(text, "lines.gz", gz)

    def zstd(part):
        return subprocess.run(["zstd", "-q", "-c"], input=part, stdout=subprocess.PIPE, check=True).stdout
    skip = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    zst = zstd(lines[:half]) + skip + zstd(lines[half:])
    write(text, "lines.zst", zst)
    return lines, gz, zst, zstd


def seeds(lines, zstd):
    def gz(part):
        return gzip.compress(part, mtime=0)
    few = lines[:200]
    for name, content in {
            "plain": few, "unended": b"a\n\nb", "empty": b"", "gzip": gz(few), "members": gz(b"a\n") + gz(few),
            "padded": gz(few) + bytes(20), "cut": gz(few)[:-9], "zstd": zstd(few), "skip": b"\x5a\x2a\x4d\x18\1\0\0\0x" + zstd(few),
            "frames": zstd(b"a") + zstd(few), "zeros": gz(bytes(100000)), "wide": b"\x28\xb5\x2f\xfd\0\x90\1\0\0"}.items():
        write(os.path.join(corpus, "input"), name, b"\x10" + content)
    for name, content in {
            "a9a": b"\0-1 3:1 11:1 14:1 \n+1 5:1 7:1 123:1\n\xff-1 1:1\n+1 124:1\n",
            "real": b"\x021.5 1:0.25 2:-1e-3\n-2e10 7:1.17549435e-38 # c\n\r\n.5\n",
            "base0": b"\x010 0:1 1:2\n1 2147483646:3\n", "qid": b"\x043 qid:1 1:1\n2 qid:1 2:0.5\n",
            "limit": b"\x081 100:1\n2 7:16777217.0000000000000001\n", "listed": b"\x10-1 1:1\n1 2:1\n\xff7 1:1\n",
            "odd": b"\0+1\t2:+.5e+1\r\n  1 1:1  3:00012.\n1e0 1:1", "bad": b"\0x 1:1\n", "order": b"\0 1 2:1 2:1\n",
            "huge": b"\0 1 99999999999:1\n", "inf": b"\0 1 1:1e999\n"}.items():
        write(os.path.join(corpus, "libsvm"), name, content)
    for name, content in {
            "header": b"\x02x,y,z\n1,a,b\n2,b,?\n3,a,c\n", "adult": b"\x0139, Private, 7\n50, ?, 1\n\xff25, Other., 3\n38, Private., 4\n",
            "quotes": b'\x00"a ""b""","x\ny",1\r\n"b", c ,2\r\n', "bom": b"\x02\xef\xbb\xbfx;y\n1;a\n;b\n",
            "tab": b"\x041\t2\n2\t\n\n3\t5", "group": b"\x10a,u,1\nb,v,2\na,u,nan\n", "real": b"\x201.5,a\n-2e3,b\n",
            "ragged": b"\0a,b\na\n", "open": b'\0a,"b\n', "refuse": b"\xc0a,1\nb,?\n", "inf": b"\0a,1\nb,inf\n",
            "yes": b"\x08a,b\n1,2\n1,3\n\xffa,b\n1,x\n", "no": b"\x0ca,b,c\na,x,d\n"}.items():
        write(os.path.join(corpus, "csv"), name, content)


libsvm()
quotes()
table()
lines_, _, _, zstd_ = packed()
seeds(lines_, zstd_)
