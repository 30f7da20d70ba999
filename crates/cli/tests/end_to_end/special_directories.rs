//! Directories that are not what they seem: encrypted without a key, and mounted when they are
//! entered.

use super::walking::{Beside, Unmount, bench_with};
use serde_json::Value;

/// A directory of an ext4 file system whose key is taken away again.
const LOCK: &str = "
import fcntl, os, struct, sys
place = sys.argv[1]
mount = os.open(place, os.O_RDONLY)
add = bytearray(struct.pack('<II32sII32s', 2, 0, b'', 64, 0, b'') + bytes(range(64)))
fcntl.ioctl(mount, 0xC0506617, add)
key = bytes(add[8:24])
os.mkdir(place + '/locked')
locked = os.open(place + '/locked', os.O_RDONLY)
fcntl.ioctl(locked, 0x800C6613, struct.pack('<BBBBB3s16s', 2, 1, 4, 3, 0, b'', key))
os.mkdir(place + '/locked/below')
open(place + '/locked/empty', 'w').close()
os.close(locked)
os.sync()
remove = struct.pack('<II32sI20s', 2, 0, key, 0, b'')
fcntl.ioctl(mount, 0xC0406618, bytearray(remove))
print('locked', flush=True)
";

/// A file system that mounts another one on each of its directories when that is entered.
const AUTOMOUNT: &str = "
import ctypes, fcntl, os, struct, subprocess, sys
place = sys.argv[1]
reading, writing = os.pipe()
os.setpgid(0, 0)
options = f'fd={writing},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect'
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b'auto', place.encode(), b'autofs', 0, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.close(writing)
root = os.open(place, os.O_RDONLY)
for name in ['one', 'two']:
    os.mkdir(f'{place}/{name}')
print('begun', flush=True)
while True:
    packet = os.read(reading, 512)
    if len(packet) < 44:
        break
    token, length = struct.unpack_from('=I', packet, 8)[0], struct.unpack_from('=I', packet, 40)[0]
    name = packet[44:44 + length].decode()
    subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', f'{place}/{name}'], check=True)
    with open(f'{place}/{name}/file', 'w') as file:
        file.write(name)
    fcntl.ioctl(root, 0x9360, token)
";

/// Names in it are ciphers, which nobody could ever read.
#[test]
fn an_encrypted_directory_without_its_key_is_named() {
    let Some(bench) = bench_with(&["mkfs.ext4"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 64M image; mkfs.ext4 -q -b 4096 -O encrypt image; mkdir m
         mount -o loop image m; echo open >m/open",
    );
    let place = bench.path("m");
    let _locked = Beside::start(LOCK, &[place.as_os_str()]);
    bench.ok(&["init"]);
    for scan in ["walk", "inode"] {
        let ran = bench.run(&["backup", "--scan", scan, "m", "--json"]);
        assert_eq!(ran.code, 3, "{scan}: {ran}");
        let is_named = |problem: &Value| problem.to_string().contains("encrypted");
        assert!(ran.of_type("problem").iter().any(is_named), "{scan}: {ran}");
        let listed = bench.ok(&["ls", "-R", "latest"]).text();
        assert!(listed.contains("m/open"), "{scan}: {listed}");
        let below = listed.lines().filter(|line| line.contains("m/locked/"));
        assert_eq!(below.count(), 0, "{scan}: {listed}");
    }
}

#[test]
fn what_is_mounted_when_it_is_entered_is_backed_up() {
    let Some(bench) = bench_with(&["mount"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir -p m/auto; echo here >m/here");
    let place = bench.path("m/auto");
    let _daemon = Beside::start(AUTOMOUNT, &[place.as_os_str()]);
    bench.ok(&["init"]);
    bench.ok(&["backup", "-x", "m"]);
    bench.sh("test $(grep -c ' m/auto/\\|/m/auto/' /proc/self/mounts) = 0");
    for _ in 0..2 {
        bench.ok(&["backup", "m"]);
        for name in ["one", "two"] {
            let address = format!("latest:{}/{name}/file", place.display());
            assert_eq!(bench.ok(&["dump", &address]).text(), name);
        }
    }
}
