#!/bin/sh
# A long pre-training with what happens to it: a kill, more steps, a divergence, a branch, a decay.
#
#   sh examples/team.sh TEXTS MORE_TEXTS LABELLED
#
#   TEXTS, MORE_TEXTS   folders of plain text, a blank line between documents
#   LABELLED            labelled texts, a CSV with the columns text and label: probe and fine-tuning
#
# The environment changes the settings:
#   OUT=mine SIZE=mini STEPS=5000 sh examples/team.sh wiki books tickets.csv
# A step of the script is a job of docs/pretraining.md.
set -eu

OUT=${OUT:-team}                                # new folder for all results
SIZE=${SIZE:-tiny}                              # tidybert models lists the sizes
VOCAB=${VOCAB:-minilm}                          # MODEL whose vocabulary to use
STEPS=${STEPS:-1000}                            # updates that were planned
MORE=${MORE:-1500}                              # updates that were planned later
SAVE=${SAVE:-100}                               # a checkpoint after so many steps
DECAY=${DECAY:-200}                             # steps of the branch, over which its rate falls
RATE=${RATE:-2e-3}                              # learning rate
HELD_OUT=${HELD_OUT:-0.02}                      # fraction of the documents to measure on
FLAGS=${FLAGS:-}                                # more flags of tidybert pretrain
TUNE=${TUNE:-}                                  # more flags of tidybert finetune
EPOCHS=${EPOCHS:-10}                            # how often the classifier sees LABELLED

fail() {
    echo "team.sh: $1" >&2
    exit 2
}

# Print the next step.
step() {
    printf '\n== %s\n' "$1"
}

# Print a command and run it.
run() {
    echo "\$ $*"
    "$@"
}

[ $# -eq 3 ] || fail "expected TEXTS MORE_TEXTS LABELLED, got $# arguments"
for path in "$@"; do
    [ -e "$path" ] || fail "$path does not exist"
done
[ ! -e "$OUT" ] || fail "$OUT exists and is not overwritten; set OUT to a new folder"
command -v tidybert > /dev/null || fail "tidybert is not installed here: pip install ."

step "1. Two corpora, with some documents held out to measure on"
run tidybert build-corpus "$1" --vocab "$VOCAB" --held-out "$HELD_OUT" --out "$OUT/first"
run tidybert build-corpus "$2" --vocab "$VOCAB" --held-out "$HELD_OUT" --out "$OUT/second"

step "2. Pre-training on both, with a probe; the machine kills it after the first checkpoint"
# The command that every restart repeats.  --resume also begins a run that is not there yet.
# exec lets the kill reach it where the shell has begun it in the background.
exec=
pretrain() {
    $exec tidybert pretrain "$SIZE" --data "$OUT/first:3" --data "$OUT/second:1" --out "$OUT/run" \
        --recipe fast --learning-rate "$RATE" --save-steps "$SAVE" --eval-steps "$SAVE" \
        --keep-every 1 --logging-steps 1 --probe "$3" $FLAGS --max-steps "$4" --resume "$5"
}
exec="exec"
pretrain "$@" "$STEPS" --quiet &
training=$!
exec=
while [ ! -d "$OUT/run/checkpoints/step-$SAVE" ]; do
    kill -0 "$training" 2> /dev/null || fail "the pre-training ended before its first checkpoint"
    sleep 0.05
done
kill -9 "$training" || fail "it was faster than the kill: set STEPS higher"
wait "$training" 2> /dev/null || true
run tidybert info "$OUT/run" --checkpoints

step "3. The same command goes on, with more steps"
pretrain "$@" "$MORE" --change
run tidybert info "$OUT/run" --checkpoints

step "4. A learning rate of 10 from step $SAVE on, which diverges"
if tidybert pretrain --branch "$OUT/run@$SAVE" --out "$OUT/diverged" --learning-rate 10 \
    --max-bad-steps 3 2> "$OUT/diverged.log"; then
    fail "a rate of 10 did not diverge"
fi
tail -n 3 "$OUT/diverged.log"

step "5. A branch before it passes over these data, and lets the rate fall to 0"
skipped=$(sed -n 's/.*--skip-steps \([0-9:]*\)$/\1/p' "$OUT/diverged.log")
before=$(sed -n 's/.*--branch [^ ]*@\([0-9]*\) .*/\1/p' "$OUT/diverged.log")
run tidybert pretrain --branch "$OUT/diverged@$before" --out "$OUT/decayed" --learning-rate "$RATE" \
    --skip-steps "$skipped" --max-steps $((before + DECAY)) --decay-steps "$DECAY"

step "6. The encoder for other programs"
run tidybert convert "$OUT/decayed" "$OUT/encoder" --to huggingface

step "7. Fine-tuning"
run tidybert finetune classify "$OUT/decayed" --train "$3" --num-train-epochs "$EPOCHS" \
    --learning-rate 5e-4 --out "$OUT/classifier" $TUNE

step "Done: $OUT/run and $OUT/decayed are the encoders, $OUT/classifier is the classifier"
