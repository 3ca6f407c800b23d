#!/usr/bin/env bash
# Seed 003 on a GPU: where a rollout's time goes by host and device, and the document's fix "double the batch" by `hotloop ab`.
# Usage: benchmarks/gpu/seed003.sh OUT [PAIRS]
set -u
out=${1:?where to} pairs=${2:-5}
here=$(cd "$(dirname "$0")/../../examples/supervised_to_ppo" && pwd)
train="$here/tools/run.py cvc.thinky_supervised_to_ppo supervised_steps=60_000 trainer.total_timesteps=60_000 evaluator.evaluate_local=False"
cd "$out" || exit 2
python3 $train run=split loss.timing_every=40 --out split > split.txt 2>&1
python3 -m hotloop report split/runs/* > report.txt
python3 -m hotloop report split/runs/* --json > report.json
python3 -m hotloop run --quiet --out hooked $train run=hooked --out hooked_out > hooked.txt 2>&1
python3 -m hotloop report hooked > hooked_report.txt
python3 -m hotloop ab "$train run=a --out a" "$train run=b --out b trainer.batch_size=1024" --pairs "$pairs" --out ab > ab.txt 2>&1
