#!/usr/bin/env bash
# Does this machine's GPU train? Runs the tests marked `gpu` and a short bf16 training that stops half-way and resumes,
# in under 8 minutes, and writes what it saw to a file.
#
#     benchmarks/gpu_check.sh [RESULT.json]        (default: out/gpu_check/result.json)
#
# PYTHON names the interpreter (default: .venv/bin/python). STEPS is the length of the training (default: 200, at
# least 20).
# Exit code: 0 all went well, 1 something failed, 2 there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-.venv/bin/python}
STEPS=${STEPS:-200}
WORK=out/gpu_check
RESULT=${1:-$WORK/result.json}

[ -x "$PYTHON" ] || { echo "gpu_check.sh: $PYTHON is not there; run make setup or set PYTHON" >&2; exit 2; }
"$PYTHON" -c "import sys, torch; sys.exit(not torch.cuda.is_available())" ||
    { echo "gpu_check.sh: no GPU that this PyTorch can use; see nvidia-smi and torch.version.cuda" >&2; exit 2; }

# A run left over from an earlier check would be resumed instead of trained.
rm -rf "$WORK"
mkdir -p "$WORK" "$(dirname "$RESULT")"

echo "== tests that need a GPU"
"$PYTHON" -m pytest -q -m gpu tests

echo "== data: the quickstart's corpus"
"$PYTHON" -m electra_ds.quickstart --only-data "$WORK/corpus"
"$PYTHON" -m electra_ds.cli tokenizer --input "$WORK/corpus/train.txt" --vocab-size 8192 --output "$WORK/tokenizer"
"$PYTHON" -m electra_ds.cli prepare --input "$WORK/corpus/train.txt" --tokenizer "$WORK/tokenizer" \
    --output "$WORK/shards"

run=$WORK/run
train=("$PYTHON" "$(dirname "$("$PYTHON" -c 'import sys; print(sys.executable)')")/deepspeed" electra_ds/train.py
    --deepspeed_config ds_configs/zero1_bf16.json --recipe small_hp_dist
    --data "$WORK/shards" --output "$run" --resume auto
    "train.steps=$STEPS" "optimizer.warmup_steps=$((STEPS / 10))" train.log_every=10)

echo "== training: $STEPS steps of small_hp_dist in bf16, stopped half-way"
# The launcher does not hand on the code 75 of a run that was stopped; status.json in the run folder has it.
"${train[@]}" "train.stop_after=$((STEPS / 2))" || true
grep -q '"exit_code": 75' "$run/status.json" ||
    { echo "gpu_check.sh: the first half did not end as it should; see $run/log.txt" >&2; exit 1; }
echo "== training: resumed"
"${train[@]}"

COMMAND="${train[*]}" "$PYTHON" - "$run/metrics.jsonl" "$RESULT" "$STEPS" <<'PYTHON'
import datetime
import json
import math
import os
import statistics
import sys

import deepspeed
import torch

metrics, result, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(metrics, encoding="utf-8") as lines:
    rows = [row for row in map(json.loads, lines) if "loss/total" in row]
losses = {row["step"]: row["loss/total"] for row in rows}
if max(losses) != steps or not all(map(math.isfinite, losses.values())):
    sys.exit(f"gpu_check.sh: {metrics} ends at step {max(losses)} of {steps} or holds a loss that is not finite")
if not losses[steps] < losses[min(losses)]:
    sys.exit(f"gpu_check.sh: the loss did not fall: {losses[min(losses)]:.2f} to {losses[steps]:.2f}")
speeds = [row["perf/tokens_per_s"] for row in rows if row["step"] > steps // 2]  # of the resumed half,
speeds = speeds[1:] or speeds  # warmed up
seen = {
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "hardware": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "deepspeed": deepspeed.__version__},
    "command": os.environ["COMMAND"],
    "steps": steps,
    "loss": {"first": losses[min(losses)], "last": losses[steps]},
    "tokens_per_s": {"median": statistics.median(speeds), "lowest": min(speeds), "highest": max(speeds)},
}
with open(result, "w", encoding="utf-8") as file:
    json.dump(seen, file, indent=2)
    file.write("\n")
print(f"{seen['tokens_per_s']['median']:,.0f} tokens/s on {', '.join(seen['hardware'])}; written to {result}")
PYTHON
