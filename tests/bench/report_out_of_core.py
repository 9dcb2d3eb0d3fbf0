"""Reads the JSON lines of `quarry train --json` on stdin, prints a table; fails when peak RSS exceeds argv[1] bytes."""

import json
import sys

limit = int(sys.argv[1])
summary = None
print(f"{'epoch':>5} {'loss':>8} {'valid':>7} {'seconds':>8} {'read GB':>8} {'useful GB':>9} {'ampl':>5} {'hits':>6} "
      f"{'MB/s':>6} {'peak RSS MiB':>12}")
for line in sys.stdin:
    record = json.loads(line)
    if "summary" in record:
        summary = record["summary"]
        continue
    print(f"{record['epoch']:>5} {record['loss']:>8.4f} {record['valid_accuracy']:>7.4f} {record['seconds']:>8.1f} "
          f"{record['bytes_read'] / 1e9:>8.2f} {record['bytes_useful'] / 1e9:>9.2f} {record['read_amplification']:>5.2f} "
          f"{record['cache_hit_ratio']:>6.1%} {record['bytes_read'] / record['seconds'] / 1e6:>6.0f} "
          f"{record['peak_rss_bytes'] / 2**20:>12.0f}", flush=True)
if summary is None:
    sys.exit("the training ended without a summary")
peak = summary["peak_rss_bytes"]
print(f"test accuracy {summary['test_accuracy']:.4f}; peak RSS {peak / 2**20:.0f} MiB of {limit / 2**20:.0f} MiB "
      f"({summary['memory_budget_bytes'] / 2**20:.0f} budget + {summary['memory_overhead_bytes'] / 2**20:.0f} overhead)")
if peak > limit:
    sys.exit("peak RSS exceeds the budget plus the stated overhead")
