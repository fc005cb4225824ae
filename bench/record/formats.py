#!/usr/bin/env python3
"""Columnar formats for blocks of the record, beside one another: bytes per flow, CPU time to write and to scan.

Usage: formats.py FOLDER_OF_BLOCKS [--json FILE]; the folder is what `record_blocks` made. Needs pyarrow, duckdb, chdb and,
for Vortex, vortex-data. Every engine must count the same flows.
"""
import glob
import json
import os
import sys
import time

import duckdb
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq


def cpu(work):
    start = time.process_time()
    result = work()
    return round((time.process_time() - start) * 1000, 1), result


def main():
    folder = sys.argv[1]
    files = sorted(glob.glob(f"{folder}/*.parquet"))
    table = pa.concat_tables(pq.read_table(file) for file in files)
    flows, report = table.num_rows, {"flows": table.num_rows}

    def put(name, value):
        report[name] = value
        print(f"{name:<44} {value:>12}")

    def measure(name, path, write, scan):
        took, _ = cpu(write)
        put(f"{name}: write, CPU us per flow", round(took * 1000 / flows, 2))
        put(f"{name}: bytes per flow", round(os.path.getsize(path) / flows, 1))
        took, count = cpu(scan)
        put(f"{name}: count of a status, CPU ms", took)
        return count

    def status(column):
        return pa.compute.sum(pa.compute.equal(column, 503)).as_py()

    out = f"{folder}/format"
    counts = {
        "parquet": measure(
            "Parquet (zstd 3)", f"{out}.pq",
            lambda: pq.write_table(table, f"{out}.pq", compression="zstd", compression_level=3, row_group_size=16384),
            lambda: status(pq.read_table(f"{out}.pq", columns=["status"])["status"])),
        "orc": measure(
            "ORC (zstd)", f"{out}.orc",
            lambda: orc.write_table(table, f"{out}.orc", compression="zstd"),
            lambda: status(orc.read_table(f"{out}.orc", columns=["status"])["status"])),
        "arrow": measure(
            "Arrow IPC (zstd)", f"{out}.arrow",
            lambda: feather.write_feather(table, f"{out}.arrow", compression="zstd", chunksize=16384),
            lambda: status(feather.read_table(f"{out}.arrow", columns=["status"])["status"])),
    }
    try:
        import vortex

        # It has no values of a fixed size.
        plain = table.set_column(0, "id", table["id"].cast(pa.binary()))

        def scan_vortex():
            return status(vortex.open(f"{out}.vortex").to_arrow(projection=["status"]).read_all()["status"])

        counts["vortex"] = measure(
            "Vortex", f"{out}.vortex", lambda: vortex.io.write(plain, f"{out}.vortex"), scan_vortex)
    except ImportError:
        print("vortex-data is not installed: left out")
    # Blocks as they are, read in place.
    names = f"{folder}/0*.parquet"
    took, row = cpu(lambda: duckdb.sql(
        f"select count(*), count(distinct host), sum(status = 503) from read_parquet('{names}')").fetchall()[0])
    put("DuckDB on the blocks: three sums, CPU ms", took)
    counts["duckdb"] = int(row[2])
    took, row = cpu(lambda: duckdb.sql(
        f"select count(*) from read_parquet('{names}') where decode(path) like '%needle%'").fetchall()[0])
    put("DuckDB on the blocks: word of a URL, CPU ms", took)
    import chdb
    took, text = cpu(lambda: str(chdb.query(
        f"select count(), countIf(status = 503) from file('{names}', Parquet)", "CSV")))
    put("ClickHouse on the blocks: two sums, CPU ms", took)
    total, counts["clickhouse"] = map(int, text.strip().split(","))
    if total != flows or len(set(counts.values())) != 1:
        sys.exit(f"the engines disagree: {total} of {flows} flows, {counts}")
    put("flows of the status, by every engine", counts["duckdb"])
    for suffix in ("pq", "orc", "arrow", "vortex"):
        if os.path.exists(f"{out}.{suffix}"):
            os.remove(f"{out}.{suffix}")
    if "--json" in sys.argv:
        with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


main()
