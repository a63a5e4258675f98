#!/bin/sh
# From plain text to your own model: vocabulary, corpus, pre-training, a classifier, its answers.
#
#   sh examples/from_scratch.sh TEXTS [TRAIN [DEV [NEW]]]
#
#   TEXTS   folder of plain text, a blank line between documents; 20 MB show that it learns
#   TRAIN   labelled texts, a CSV with the columns text and label
#   DEV     more of them to measure on; without it a tenth of TRAIN is held out
#   NEW     texts to answer, one a line, or a CSV with the column text; without it DEV or TRAIN
#
# Without TRAIN the script learns the bundled support tickets. The environment changes the settings:
#   OUT=mine SIZE=mini STEPS=5000 sh examples/from_scratch.sh TEXTS
# The script shows each command. After a stop, repeat the last one by hand and continue from there;
# add --resume to pretrain and finetune.
set -eu

OUT=${OUT:-from-scratch}                        # new folder for all results
SIZE=${SIZE:-tiny}                              # 2 layers of 128; tidybert models lists the others
VOCAB_SIZE=${VOCAB_SIZE:-8000}                  # WordPiece tokens
HELD_OUT=${HELD_OUT:-0.02}                      # fraction of the documents to measure on
STEPS=${STEPS:-1000}                            # updates of pre-training
TOKENS_PER_STEP=${TOKENS_PER_STEP:-4096}        # 1,000 x 4,096 = 4 million tokens
FLAGS=${FLAGS:-}                                # more flags of tidybert pretrain: "--schedule linear"
EPOCHS=${EPOCHS:-10}                            # how often the classifier sees TRAIN
MASKED=${MASKED:-"they went back to the [MASK] ."}

fail() {
    echo "from_scratch.sh: $1" >&2
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

[ $# -ge 1 ] && [ $# -le 4 ] || fail "expected TEXTS [TRAIN [DEV [NEW]]], got $# arguments"
for path in "$@"; do
    [ -e "$path" ] || fail "$path does not exist"
done
[ ! -e "$OUT" ] || fail "$OUT exists and is not overwritten; set OUT to a new folder"
command -v tidybert > /dev/null || fail "tidybert is not installed here: pip install ."

texts=$1
if [ $# -ge 2 ]; then
    train=$2
    dev=${3:-}
    new=${4:-${dev:-$train}}
else
    tickets=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)/src/tidybert/resources/tickets
    train=$tickets/train.csv
    dev=$tickets/dev.csv
    new=$tickets/new.txt
fi

step "1. A vocabulary: the WordPiece tokens that fit $texts best"
run tidybert train-vocab "$texts" --size "$VOCAB_SIZE" --held-out "$HELD_OUT" --out "$OUT/vocab"

step "2. A corpus: the text as numbers, with some documents held out to measure on"
run tidybert build-corpus "$texts" --vocab "$OUT/vocab" --held-out "$HELD_OUT" --out "$OUT/corpus"

step "3. Pre-training: $SIZE learns to fill in masked words; the losses are in $OUT/encoder/curves.svg"
tenth=$((STEPS / 10))
run tidybert pretrain "$SIZE" --data "$OUT/corpus" --out "$OUT/encoder" --recipe fast \
    --max-steps "$STEPS" --tokens-per-step "$TOKENS_PER_STEP" --eval-steps $((tenth > 0 ? tenth : 1)) \
    $FLAGS

step "4. The encoder fills in a masked word"
run tidybert fill-mask "$OUT/encoder" "$MASKED"

step "5. Fine-tuning: the encoder learns the labels in $train"
run tidybert finetune classify "$OUT/encoder" --train "$train" ${dev:+--dev "$dev"} \
    --dev-fraction 0.1 --num-train-epochs "$EPOCHS" --learning-rate 5e-4 --train-batch-size 16 \
    --out "$OUT/classifier"

if [ -n "$dev" ]; then
    step "6. A report of its scores on $dev: $OUT/report/report.html"
    run tidybert evaluate "$OUT/classifier" "$dev" --report "$OUT/report"
else
    step "6. The scores above are of the tenth of $train that was held out"
fi

step "7. Answers to the texts in $new, a line each"
run tidybert predict "$OUT/classifier" "$new" --out "$OUT/predictions.jsonl"
head -n 3 "$OUT/predictions.jsonl"

step "Done: $OUT has the vocabulary, the corpus, the encoder and the classifier"
