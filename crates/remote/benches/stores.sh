#!/bin/bash
# First backups into new repositories of stores near and far, and restores of everything, interleaved; docs/PERF.md,
# "Stores on a wire", is made of this.
#
#   sudo crates/remote/benches/stores.sh [ROUNDS [WORKDIR]]
#   STORES="serve sftp" FAR=only sudo -E crates/remote/benches/stores.sh 5
#
# STORES: some of serve, sftp, s3 (SeaweedFS), rclone and versity (their S3 servers; versitygw is a Go program); those
# without a program are left out and named.
# FAR: yes (near and far), no, only. SPLIT=yes: the client on one core and the servers on another, as if each had a
# machine of its own; else all share the machine. RATE: megabytes a second (100), DELAY: milliseconds (50). BALE and LINE name the
# binaries; COUNT files are made (300,000).
# Prints for each run: seconds, seconds divided by those of the local directory in this round (near) or by what the
# repository's bytes take on the line (far), CPU seconds of the client, and of all that takes part.
set -eu
rounds=${1:-3} work=$(mktemp -d "${2:-/tmp}/stores.XXXXXX")
bale=$(realpath "${BALE:-target/release/bale}") line=$(realpath "${LINE:-target/release/examples/line}")
for program in "$bale" "$line"; do
    [ -x "$program" ] || { echo "not built: $program (cargo build --release --workspace --bins --examples)" >&2; exit 1; }
done
count=${COUNT:-300000} far=${FAR:-yes} rate=${RATE:-100} delay=${DELAY:-50}
on_client="" on_server=""
if [ "${SPLIT:-no}" = yes ]; then on_client="taskset -c 0" on_server="taskset -c 1"; fi
export BALE_PASSWORD=stores BALE_CACHE_DIR=$work/cache AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=benchbench
export AWS_REGION=us-east-1
sftp_server=$(command -v sftp-server || echo /usr/lib/openssh/sftp-server)
has() {
    case $1 in
        serve) true ;;
        sftp) [ -x "$sftp_server" ] && command -v socat >/dev/null ;;
        s3) command -v weed >/dev/null ;;
        rclone) command -v rclone >/dev/null ;;
        versity) command -v versitygw >/dev/null ;;
    esac
}
stores=
for store in ${STORES:-serve sftp s3 rclone versity}; do
    if has "$store"; then stores="$stores $store"; else echo "left out, its program is missing: $store" >&2; fi
done
clean() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    if mountpoint -q "$work/to"; then umount "$work/to"; fi
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

"$bale" gen --quiet --to-ext4 "$work/g.img" --count "$count" -s 1024 -S 2048 --block-size 1024
mkdir "$work/to" "$work/served" "$work/files"
mount -t tmpfs -o size=4G stores "$work/to"

until_answers() {
    for _ in $(seq 600); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "nobody answers at port $1" >&2
    exit 1
}
start() {
    case $1 in
        serve)
            $on_server "$bale" serve --no-auth --listen 127.0.0.1:7801 "$work/served" >"$work/serve.log" 2>&1 &
            near_serve=rest:http://127.0.0.1:7801/ far_serve=rest:http://127.0.0.1:7901/
            "$line" 127.0.0.1:7901 127.0.0.1:7801 $delay $rate & until_answers 7801 ;;
        sftp)
            near_sftp=sftp:here:$work/files/ far_sftp=$near_sftp
            "$line" 127.0.0.1:7902 "exec:$sftp_server" $delay $rate & ;;
        s3)
            echo '{"identities":[{"name":"b","credentials":[{"accessKey":"bench","secretKey":"benchbench"}],
                "actions":["Admin","Read","Write","List"]}]}' >"$work/s3.json"
            mkdir "$work/weed"
            $on_server weed server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$work/weed" -master.volumeSizeLimitMB=64 -volume.max=200 \
                -master.port=7813 -master.port.grpc=7814 -volume.port=7815 -volume.port.grpc=7816 -filer.port=7817 \
                -filer.port.grpc=7818 -s3.port.grpc=7819 -s3.port.iceberg=0 -s3.port.lance=0 -master.telemetry=false \
                -filer -s3 -s3.port=7803 -s3.config="$work/s3.json" >"$work/weed.log" 2>&1 &
            near_s3=s3:http://127.0.0.1:7803/bench/ far_s3=s3:http://127.0.0.1:7903/bench/
            "$line" 127.0.0.1:7903 127.0.0.1:7803 $delay $rate & until_answers 7803
            curl -sf -o /dev/null --retry 60 --retry-all-errors --retry-delay 1 --aws-sigv4 aws:amz:us-east-1:s3 \
                -u bench:benchbench -X PUT http://127.0.0.1:7803/bench ;;
        rclone)
            mkdir -p "$work/rclone/bench"
            $on_server rclone serve s3 --addr 127.0.0.1:7804 --auth-key bench,benchbench "$work/rclone" >"$work/rclone.log" 2>&1 &
            near_rclone=s3:http://127.0.0.1:7804/bench/ far_rclone=s3:http://127.0.0.1:7904/bench/
            "$line" 127.0.0.1:7904 127.0.0.1:7804 $delay $rate & until_answers 7804 ;;
        versity)
            mkdir -p "$work/versity/bench"
            $on_server versitygw --access bench --secret benchbench --port 127.0.0.1:7805 --quiet \
                posix "$work/versity" >"$work/versity.log" 2>&1 &
            near_versity=s3:http://127.0.0.1:7805/bench/ far_versity=s3:http://127.0.0.1:7905/bench/
            "$line" 127.0.0.1:7905 127.0.0.1:7805 $delay $rate & until_answers 7805 ;;
    esac
}
for store in $stores; do start "$store"; done

# Centiseconds of CPU of all that this script has started, ended or not.
cpu() { cat /proc/stat | awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }'; }
drop() { sync; echo 3 >/proc/sys/vm/drop_caches; }
seconds() { date +%s.%N; }
number=0
# NAME REPOSITORY DENOMINATOR: a first backup and a restore of it; sets took_backup and took_restore.
run() {
    local name=$1 repo=$2 began all_before all TIMEFORMAT='%U %S'
    "$bale" -q -r "$repo" init >/dev/null 2>&1
    drop
    all_before=$(cpu) began=$(seconds)
    { time $on_client "$bale" -q -r "$repo" backup --scan inode "$work/g.img" 2>&3; } 3>&2 2>"$work/time"
    took_backup=$(echo "$(seconds) - $began" | bc) all=$(($(cpu) - all_before))
    print "$name backup" "$took_backup" "$3" "$all"
    rm -rf "$work/cache"
    drop
    all_before=$(cpu) began=$(seconds)
    { time $on_client "$bale" -q -r "$repo" restore latest --target "$work/to/r" 2>&3; } 3>&2 2>"$work/time"
    took_restore=$(echo "$(seconds) - $began" | bc) all=$(($(cpu) - all_before))
    print "$name restore" "$took_restore" "${4:-$3}" "$all"
    rm -rf "$work/to/r" "$work/cache"
}
print() {
    awk -v what="$1" -v took="$2" -v by="$3" -v all="$4" '{
        printf "%-24s %6.2f s  %5.2f x  client %5.2f CPU s  all %5.2f\n", what, took, took / by, $1 + $2, all / 100
    }' <"$work/time"
}
for round in $(seq "$rounds"); do
    echo "round $round"
    number=$((number + 1))
    run local "$work/local" 1
    local_backup=$took_backup local_restore=$took_restore
    line_seconds=$(du -sb "$work/local" | awk -v rate=$rate '{ printf "%.2f", $1 / rate / 1e6 }')
    rm -rf "$work/local"
    far_backup=$(echo "$local_backup $line_seconds" | awk '{ print ($1 > $2) ? $1 : $2 }')
    far_restore=$(echo "$local_restore $line_seconds" | awk '{ print ($1 > $2) ? $1 : $2 }')
    for store in $stores; do
        near=near_$store at_far=far_$store
        if [ "$far" != only ]; then
            [ "$store" != sftp ] || export BALE_SFTP_COMMAND="$on_server $sftp_server"
            run "$store" "${!near}n$number" "$local_backup" "$local_restore"
        fi
        if [ "$far" != no ]; then
            [ "$store" != sftp ] || export BALE_SFTP_COMMAND="socat -b 262144 - TCP:127.0.0.1:7902,nodelay"
            run "$store far" "${!at_far}f$number" "$far_backup" "$far_restore"
        fi
        rm -rf "$work/served/"* "$work/files/"*
    done
done
