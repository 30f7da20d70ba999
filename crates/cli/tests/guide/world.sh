#!/usr/bin/env bash
# A small machine of its own for one page of the guide: its own root directory, mounts, processes, host name and
# network, all of which end with the page. Nothing of the real machine can be written but what is in /dev.
#
#   unshare --mount --uts --pid --net --fork --kill-child bash world.sh ROOT BALE WORLD [COMMAND...]
#
# ROOT is an empty directory, BALE the program, WORLD what is there when the page begins: "empty" (files to back up),
# "repository" (also /srv/backup, with two snapshots of them), or "checkout" (the sources of Bale, already built, and the
# working directory). COMMAND is a path below ROOT and its words.
set -euo pipefail

root=$1 bale=$2 world=$3
shift 3
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../../..")

mount --make-rprivate /
# The root of a machine is a mount.
mount --bind "$root" "$root"
cd /
mkdir -p "$root"/{usr,etc/bale,proc,sys,dev,run,tmp,mnt,root,home/me,home/you,srv/www,var/log,var/tmp,var/lib,opt/bale}
chmod 1777 "$root"/tmp "$root"/var/tmp
chmod 700 "$root"/root
mount --rbind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount -t tmpfs -o mode=755 tmpfs "$root/usr/local"
mkdir -p "$root"/usr/local/{bin,sbin,share/man/man1,share/bash-completion/completions}
for directory in bin sbin lib lib32 lib64 libx32; do
    if [[ -L /$directory ]]; then
        cp -a "/$directory" "$root/"
    elif [[ -d /$directory ]]; then
        mkdir "$root/$directory"
        mount --bind "/$directory" "$root/$directory"
    fi
done
for file in passwd group nsswitch.conf ld.so.cache ld.so.conf ld.so.conf.d alternatives ssl mke2fs.conf \
    fuse.conf localtime magic; do
    if [[ -e /etc/$file ]]; then cp -a "/etc/$file" "$root/etc/"; fi
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
ln -s ../proc/self/mounts "$root/etc/mtab"
cp "$bale" "$root/opt/bale/bale"
hostname web1
printf '127.0.0.1 %s\n' localhost web1 backup.example.org far.example.org >"$root/etc/hosts"
ip link set lo up

# What there is to back up. The same bytes and times in every world.
cd "$root/home/me"
mkdir -p mail/2026 photos .cache/thumbnails src/tool/target
for number in 1 2 3; do printf 'From: someone\n\nLetter %s\n' "$number" >"mail/2026/$number.eml"; done
printf 'buy bread\n' >notes.txt
seq 200000 >photos/summer.raw
printf 'Signature: 8a477f597d28d172789f06886806bc55\n' >.cache/CACHEDIR.TAG
seq 5000 >.cache/thumbnails/all
printf 'int main(void) { return 0; }\n' >src/tool/main.c
seq 3000 >src/tool/target/main.o
ln -s notes.txt todo
printf 'hello\n' >"$root/home/you/hello.txt"
printf '<h1>It works</h1>\n' >"$root/srv/www/index.html"
printf '/dev/sda1 / ext4 errors=remount-ro 0 1\n' >"$root/etc/fstab"
printf 'correct horse battery staple\n' >"$root/etc/bale/password"
chmod 600 "$root/etc/bale/password"
chown -R 1000:1000 "$root/home/me"
find "$root/home" "$root/srv/www" "$root/etc/fstab" -exec touch -h -d '2026-11-02 08:00 UTC' {} +

inside() {
    chroot "$root" /usr/bin/env -i HOME=/root TZ=UTC LANG=C.UTF-8 TERM=dumb COLUMNS=100 \
        PATH=/opt/bale:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

case $world in
    empty) ;;
    checkout)
        # What compiles and what tests for minutes is run by .ci/doors and .ci/run; here they are stand-ins, so that what
        # the page shows after them begins where they leave off.
        mkdir -p "$root/root/bale/target/release"
        cp -a "$checkout/docs" "$root/root/bale/"
        ln -s /opt/bale/bale "$root/root/bale/target/release/bale"
        printf '#!/bin/sh\n[ "$1 $2 $3" = "run --release --" ] && shift 3 && exec target/release/bale "$@"\n' \
            >"$root/usr/local/bin/cargo"
        printf '#!/bin/sh\n' >"$root/root/bale/test"
        chmod 755 "$root/usr/local/bin/cargo" "$root/root/bale/test"
        rm -rf "$root/etc/bale"
        set -- bash -c 'cd /root/bale; exec "$@"' bash "$@"
        ;;
    repository)
        inside BALE_REPOSITORY=/srv/backup BALE_PASSWORD_FILE=/etc/bale/password bash -euc '
            bale init -q 2>/run/recovery-key
            bale backup -q /home /etc
            echo "buy milk" >>/home/me/notes.txt
            echo new >/home/me/mail/2026/4.eml
            bale backup -q /home /etc'
        set -- BALE_REPOSITORY=/srv/backup BALE_PASSWORD_FILE=/etc/bale/password "$@"
        ;;
    *) echo "no such world: $world" >&2; exit 2 ;;
esac
inside "$@"
