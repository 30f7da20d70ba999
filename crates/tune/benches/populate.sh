#!/bin/bash
# `bale gen` into a directory against populate.c, interleaved, each on a fresh ext4 of its own on a loop device.
#
#   sudo BALE=target/release/bale crates/tune/benches/populate.sh [FILES [RUNS [WORKDIR]]]
#
# Prints for every run: seconds until all calls returned, seconds with the sync after them, CPU seconds of both kinds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
files=${1:-200000} runs=${2:-3} work=$(mktemp -d "${3:-/tmp}/populate.XXXXXX")
bale=$(realpath "${BALE:-target/release/bale}")
tree=(--count "$files" -d 7 -D 15 -r 3 -R 6 -f 32 -F 128 -s 1024 -S 2048)
loop=
clean() {
    if mountpoint -q "$work/at"; then umount "$work/at"; fi
    if [ -n "$loop" ]; then losetup -d "$loop"; fi
    rm -rf "$work"
}
trap clean EXIT
cc -O2 -o "$work/populate" "$here/populate.c"
"$bale" gen --manifest "$work/list" "${tree[@]}" --quiet
mkdir "$work/at"
measure() {
    local name=$1
    shift
    truncate -s $((files * 8192 + (1 << 30))) "$work/image"
    mkfs.ext4 -q -i 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
    loop=$(losetup --find --show --direct-io=on "$work/image")
    mount -o noatime "$loop" "$work/at"
    sync
    local began ended
    began=$(date +%s.%N)
    TIMEFORMAT="%R s, %U user, %S system"
    time "$@"
    sync -f "$work/at"
    ended=$(date +%s.%N)
    echo "$name: with sync $(echo "$ended - $began" | bc) s"
    umount "$work/at"
    losetup -d "$loop"
    loop=
    rm "$work/image"
}
for _ in $(seq "$runs"); do
    measure C bash -c "'$work/populate' '$work/at' < '$work/list'"
    measure bale "$bale" gen -t "$work/at" "${tree[@]}" --json
done
