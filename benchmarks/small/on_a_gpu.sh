#!/bin/sh
# Trains tidybert-small further on one GPU, and measures its speed; run it from the repository's root.
#
#     sh benchmarks/small/on_a_gpu.sh TEXTS OUT          prepare, train and measure
#     sh benchmarks/small/on_a_gpu.sh TEXTS OUT train    prepare and train
#     sh benchmarks/small/on_a_gpu.sh TEXTS OUT cuda     measure alone
#
# What is carried: this checkout (46 MB, of which 38 are tidybert-small, which is start and teacher),
# and TEXTS, a folder of plain texts as build-corpus reads them; .xz is the smallest (1.6 bytes a
# word, so 17 MiB are 15 million tokens).  minilm is not needed; TEACHER names another teacher.  Of
# the dependencies two are rare where PyTorch is there: msgspec and rensa.
#
# What each part takes on an H100 or H200, as NOTES.md has it, or as far as it can be computed:
#     prepare   a core reads 24 MB of text a second: half a minute for 100 million tokens
#     train     MINUTES, 8 if not set: 1.1 million tokens/s, so 4,000 steps and 520 million tokens
#     cuda      CUDA_SECONDS, 240 if not set; its table grows by a row after each step
#
# What comes back: OUT/weights.00, .01, … after each minute of training, in parts of 15 MiB.  They
# are a packed MODEL, so a machine that goes away loses a minute; sums tells parts of two minutes:
#     (cd OUT && sha256sum -c sums) && cat OUT/weights.* | tar -x -C FOLDER
# OUT/train.log and OUT/cuda.md have the figures.  Then take the mean of FOLDER/packed and of the
# weights before (NOTES.md, "Fine-tuning got worse, and a mean mends it").
#
# All of it on a CPU with tiny sizes, as its test does: DEVICE=cpu STEPS=4, and FLAGS.
set -eu
texts=$1 out=$2 part=${3:-all}
device=${DEVICE:-cuda} minutes=${MINUTES:-8} python=${PYTHON:-python3}
start=${START:-src/tidybert/resources/tidybert-small}
work=${WORK:-$(mktemp -d)}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
mkdir -p "$out"

seen=
bring_back() {
    now=$(ls -l --time-style=full-iso "$work/run-latest" 2>/dev/null || true)
    [ "$now" != "$seen" ] || return 0
    seen=$now
    # An evaluation may replace RUN-latest meanwhile, so it is read from a copy.
    rm -rf "$work/copy" "$work/packed" "$work/parts"
    cp -r "$work/run-latest" "$work/copy" || return 0
    "$python" -m benchmarks pack_model "$work/copy" "$work/packed" >"$work/pack.log" 2>&1 || {
        cp "$work/pack.log" "$out/pack.log"
        return 0
    }
    mkdir "$work/parts"
    tar -c -C "$work" packed | split -d -b 15M - "$work/parts/weights."
    (cd "$work/parts" && sha256sum weights.*) >"$work/sums"
    mv "$work/parts"/* "$work/sums" "$out"
}

if [ "$part" != cuda ]; then
    # shellcheck disable=SC2086
    "$python" -m tidybert build-corpus "$texts" --vocab "$start" --out "$work/corpus" \
        ${CORPUS_FLAGS:-} >"$out/prepare.log" 2>&1
    # Steps of 131,072 tokens: 500 a minute, and an evaluation, which writes RUN-latest, each minute.
    steps=${STEPS:-$((minutes * 500))}
    # shellcheck disable=SC2086
    "$python" -m benchmarks small_train "$work" --out "$work/run" \
        --start "$start" --teacher "${TEACHER:-$start}" --device "$device" \
        --max-steps "$steps" --save-minutes 5 ${FLAGS:---eval-steps 500 \
        --tokens-per-step 131072 --micro-batch 131072 --teacher-sentences 512 \
        --learning-rate 1.5e-3 --long-share 0.15 --long-seq-length 512} >"$out/train.log" 2>&1 &
    training=$!
    while kill -0 $training 2>/dev/null; do
        sleep "${SECONDS_BETWEEN:-5}"
        bring_back
    done
    status=0
    wait $training || status=$?
    bring_back
    [ $status -eq 0 ] || exit $status
fi
if [ "$part" != train ]; then
    # shellcheck disable=SC2086
    timeout "${CUDA_SECONDS:-240}" "$python" -m benchmarks cuda --device "$device" --out "$out/cuda.md" \
        ${CUDA_FLAGS:-} 2>&1 | tee "$out/cuda.log"
fi
