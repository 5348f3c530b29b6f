"""Compares the rows of Parquet and Arrow files with what pyarrow, which writes them, reads.

usage: table_parity.py PRINT_ROWS

Each table is written in every way that matters: compressions, encodings, page versions, small pages and row groups.
Then copies of some files are damaged at many places: the reader has to give rows or refuse them with one error.
Exits 1 if anything differs, and 77 (skipped) where pyarrow is missing.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WORDS = "the quick brown fox jumps over a lazy dog and ünïcödé 文字 🙂 sings".split()
TURN = pa.struct([("role", pa.string()), ("content", pa.string())])


def text(rng, most):
    return " ".join(rng.choices(WORDS, k=rng.randrange(most)))


def maybe(rng, value):
    return None if rng.random() < 0.2 else value


def flat_table(rng, rows):
    return pa.table({
        "required": pa.array([text(rng, 12) for _ in range(rows)]),
        "text": pa.array([maybe(rng, text(rng, 30)) for _ in range(rows)]),
        "repeated": pa.array([maybe(rng, rng.choice(WORDS)) for _ in range(rows)]),
        "same": pa.array(["x"] * rows),
        "nulls": pa.array([None] * rows, pa.string()),
        "large": pa.array([text(rng, 5) for _ in range(rows)], pa.large_string()),
        "i8": pa.array([rng.randrange(-128, 128) for _ in range(rows)], pa.int8()),
        "i32": pa.array([maybe(rng, rng.randrange(-2**31, 2**31)) for _ in range(rows)], pa.int32()),
        "u32": pa.array([rng.randrange(2**32) for _ in range(rows)], pa.uint32()),
        "i64": pa.array([rng.randrange(-2**63, 2**63) for _ in range(rows)], pa.int64()),
        "rising": pa.array(range(rows), pa.int64()),
        "f32": pa.array([rng.random() for _ in range(rows)], pa.float32()),
        "f64": pa.array([maybe(rng, rng.random()) for _ in range(rows)], pa.float64()),
        "yes": pa.array([maybe(rng, rng.random() < 0.5) for _ in range(rows)], pa.bool_()),
    })


def nested_table(rng, rows):
    def turns():
        return [maybe(rng, {"role": rng.choice(["user", "assistant"]), "content": maybe(rng, text(rng, 20))})
                for _ in range(rng.randrange(4))]

    return pa.table({
        "messages": pa.array([maybe(rng, turns()) for _ in range(rows)], pa.list_(TURN)),
        "ids": pa.array([maybe(rng, [maybe(rng, rng.randrange(50000)) for _ in range(rng.randrange(9))])
                         for _ in range(rows)], pa.list_(pa.int32())),
        "deep": pa.array([[maybe(rng, [[text(rng, 3)] * rng.randrange(3)]) for _ in range(rng.randrange(3))]
                          for _ in range(rows)], pa.list_(pa.list_(pa.list_(pa.string())))),
        "struct": pa.array([maybe(rng, {"a": maybe(rng, i), "b": {"c": text(rng, 4)}}) for i in range(rows)],
                           pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        "wide": pa.array([[text(rng, 2)] for _ in range(rows)], pa.large_list(pa.large_string())),
    })


def required_table(rng, rows):
    schema = pa.schema([
        pa.field("text", pa.string(), nullable=False),
        pa.field("ids", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
        pa.field("messages", pa.list_(pa.field("element", pa.struct([
            pa.field("role", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]),
            nullable=False)), nullable=False),
    ])
    return pa.table([
        pa.array([text(rng, 9) for _ in range(rows)]),
        pa.array([list(range(rng.randrange(5))) for _ in range(rows)], schema.field("ids").type),
        pa.array([[{"role": "user", "n": k} for k in range(rng.randrange(4))] for _ in range(rows)],
                 schema.field("messages").type),
    ], schema=schema)


PARQUET_WAYS = {
    "default": {},
    "none": {"compression": "none"},
    "gzip": {"compression": "gzip"},
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4"},
    "plain": {"use_dictionary": False},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "version 2 without dictionary": {"data_page_version": "2.0", "use_dictionary": False},
    "format 2.6": {"version": "2.6", "use_dictionary": False, "compression": "none"},
    "format 1.0": {"version": "1.0"},
    "small pages": {"data_page_size": 64, "dictionary_pagesize_limit": 128, "write_batch_size": 4},
    "small row groups": {"row_group_size": 7},
    "checksums": {"write_page_checksum": True},
    "old lists": {"use_compliant_nested_type": False},
}
DELTA = {pa.string(): "DELTA_BYTE_ARRAY", pa.large_string(): "DELTA_LENGTH_BYTE_ARRAY", pa.int64(): "DELTA_BINARY_PACKED",
         pa.int32(): "DELTA_BINARY_PACKED", pa.uint32(): "DELTA_BINARY_PACKED", pa.bool_(): "RLE"}


class Report:
    def __init__(self, program, root):
        self.program, self.root, self.failed = program, root, 0

    def rows(self, path):
        done = subprocess.run([self.program, str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.split("\n")[:-1]]

    def compare(self, what, path, table):
        try:
            ours, problem = self.rows(path), ""
        except RuntimeError as error:
            ours, problem = [], str(error)
        theirs = table.to_pylist()
        same = ours == theirs
        self.failed += not same
        print(f"{what:55} {'equal' if same else 'DIFFERENT ' + problem}", flush=True)
        for i in [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b][:2]:
            print(f"    row {i}\n      ours   {ours[i]}\n      theirs {theirs[i]}")

    def refused_or_read(self, what, whole, places):
        """Damage at each of `places`: an exit code other than 0 and 2 is a crash."""
        refused = 0
        path = self.root / "damaged"
        for damage in places:
            path.write_bytes(damage(whole))
            done = subprocess.run([self.program, str(path)], capture_output=True, text=True)
            one_error = done.stderr.startswith("[data] ") and done.stderr.count("\n") == 1
            if done.returncode not in (0, 2) or (done.returncode == 2 and not one_error):
                print(f"{what}: exit {done.returncode}: {done.stderr[:300]}")
                self.failed += 1
            refused += done.returncode == 2
        print(f"{what:55} {refused} of {len(places)} damaged copies refused")


def damages(rng, size, count):
    def flip(at, bit):
        return lambda b: b[:at] + bytes([b[at] ^ (1 << bit)]) + b[at + 1:]

    def cut(at):
        return lambda b: b[:at]

    return [flip(rng.randrange(size), rng.randrange(8)) for _ in range(count)] + [
        cut(rng.randrange(size)) for _ in range(count // 10)]


def compare_parquet(report, rng):
    tables = {"flat": flat_table(rng, 200), "nested": nested_table(rng, 200), "required": required_table(rng, 100)}
    for kind, table in tables.items():
        for way, options in PARQUET_WAYS.items():
            path = report.root / "rows.parquet"
            pq.write_table(table, path, **options)
            report.compare(f"Parquet, {kind}, {way}", path, table)
        flat = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
        encodings = {n: DELTA[table.schema.field(n).type] for n in flat if table.schema.field(n).type in DELTA}
        for page in ("1.0", "2.0"):
            pq.write_table(table, path, use_dictionary=False, column_encoding=encodings, data_page_version=page)
            report.compare(f"Parquet, {kind}, delta encodings, pages {page}", path, table)
    pq.write_table(tables["nested"].slice(0, 20), path, compression="none")
    whole = path.read_bytes()
    report.refused_or_read("Parquet, damaged", whole, damages(rng, len(whole), 50))


def other_table(rng, rows):
    """What Arrow has and Parquet hasn't."""
    return pa.table({
        "coded": pa.array([maybe(rng, rng.choice(WORDS)) for _ in range(rows)]).dictionary_encode(),
        "coded numbers": pa.DictionaryArray.from_arrays(pa.array([maybe(rng, rng.randrange(3)) for _ in range(rows)], pa.uint8()),
                                                        pa.array([7, None, -9], pa.int64())),
        "views": pa.array([maybe(rng, text(rng, 9)) for _ in range(rows)], pa.string_view()),
        "pair": pa.array([maybe(rng, [maybe(rng, i), -i]) for i in range(rows)], pa.list_(pa.int16(), 2)),
        "null": pa.nulls(rows),
        "u64": pa.array([rng.randrange(2**63) for _ in range(rows)], pa.uint64()),
        "inside": pa.array([[{"role": rng.choice(WORDS)}] for _ in range(rows)],
                           pa.list_(pa.struct([("role", pa.dictionary(pa.int32(), pa.string()))]))),
    })


def left_out_table(rng, rows):
    """Types that rows leave out, between others: their buffers are passed over."""
    times = pa.array(range(rows), pa.timestamp("s"))
    words = pa.array([text(rng, 3) for _ in range(rows)])
    codes = pa.array([i % 2 for i in range(rows)], pa.int8())
    halves = pa.UnionArray.from_sparse(codes, [words, pa.array(range(rows))])
    dense = pa.UnionArray.from_dense(codes, pa.array(range(rows), pa.int32()), [words, pa.array(range(rows))])
    return pa.table({
        "a": words, "times": times, "b": words, "bytes": pa.array([b"x"] * rows), "c": words, "sparse": halves, "d": words,
        "dense": dense, "e": words, "byte views": pa.array([b"a longer run of bytes"] * rows, pa.binary_view()), "f": words,
        "runs": pa.RunEndEncodedArray.from_arrays([rows], ["x"]), "g": words, "fixed": pa.array([b"xyz"] * rows, pa.binary(3)),
        "lists": pa.array([[None]] * rows, pa.list_(pa.date32())), "h": words,
        "coded bytes": pa.array([b"x"] * rows).dictionary_encode(), "i": words,
        "list views": pa.array([["x"]] * rows, pa.list_view(pa.string())), "j": words,
    })


def compare_arrow(report, rng):
    tables = {"flat": flat_table(rng, 200), "nested": nested_table(rng, 200), "required": required_table(rng, 100),
              "other": other_table(rng, 100)}
    path = report.root / "rows.arrow"
    for kind, table in tables.items():
        for compression in ("uncompressed", "lz4", "zstd"):
            pyarrow.feather.write_feather(table, str(path), compression=compression, chunksize=64)
            report.compare(f"Feather, {kind}, {compression}", path, table)
        with pa.ipc.new_stream(str(path), table.schema) as out:
            out.write_table(table.slice(0, 60), max_chunksize=7)
            out.write_table(table.slice(60))
        report.compare(f"Arrow stream, {kind}", path, table)
    slices = [pa.table({"word": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["a", "b", "c", "a"], ["z"])]
    for deltas in (False, True):
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
        with pa.ipc.new_stream(str(path), slices[0].schema, options=options) as out:
            for part in slices:
                out.write_table(part)
        report.compare(f"Arrow stream, dictionaries, deltas {deltas}", path, pa.concat_tables(slices))
    left_out = left_out_table(rng, 50)
    pyarrow.feather.write_feather(left_out.drop_columns(["runs"]), str(path), compression="zstd")
    report.compare("Feather, types that are left out", path, left_out.select(list("abcdefghij")))
    with pa.ipc.new_stream(str(path), left_out.schema) as out:
        out.write_table(left_out)
    report.compare("Arrow stream, types that are left out", path, left_out.select(list("abcdefghij")))
    for kind in ("nested", "other"):
        with pa.ipc.new_file(str(path), tables[kind].schema) as out:
            out.write_table(tables[kind].slice(0, 20), max_chunksize=11)
        whole = path.read_bytes()
        report.refused_or_read(f"Arrow, {kind}, damaged", whole, damages(rng, len(whole), 50))


def main(program):
    rng = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="lorikeet-tables-") as folder:
        report = Report(program, pathlib.Path(folder))
        compare_parquet(report, rng)
        compare_arrow(report, rng)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
