//! A file system that gives other things than it says: what is believed of it is asked twice.

use super::bench::{Bench, skipped};
use super::walking::{Beside, Unmount, bench_with, named};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A server of FUSE, without a library (linux/fuse.h has the requests): names of files, with the
/// bytes that it says and those that it gives. A file beside it holds the name that a listing
/// lacks. Contents are the name of what is mounted, again and again.
const LYING: &str = "
import ctypes, os, struct, sys
place, hidden, source = sys.argv[1:4]
LARGE = 2 << 20
files = {
    b'honest': (10, 10), b'more': (10, 20), b'less': (20, 10), b'empty': (0, 10),
    b'large': (LARGE, LARGE), b'large-more': (LARGE, LARGE + 5), b'large-less': (LARGE, LARGE // 2),
    b'steady': (5, 5),
}
names = sorted(files)
BROKEN = 100
fd = os.open('/dev/fuse', os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f'fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other'
if libc.mount(source.encode(), place.encode(), b'fuse', 0, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
def attributes(node):
    is_directory = node in (1, BROKEN)
    size = 0 if is_directory else files[names[node - 2]][0]
    mode, links = (0o40755, 2) if is_directory else (0o100644, 1)
    then = 1700000000
    return struct.pack('<6Q10I', node, size, size // 512, then, then, then, 0, 0, 0, mode, links, 0, 0,
                       0, 4096, 0)
def number(name):
    return BROKEN if name == b'broken' else names.index(name) + 2 if name in files else None
def listed(node):
    if node == BROKEN:
        return None
    lacking = open(hidden, 'rb').read()
    return [name for name in names + [b'broken'] if name != lacking]
def answer(unique, error=0, body=b''):
    os.write(fd, struct.pack('<IiQ', 16 + len(body), -error, unique) + body)
print('mounted', flush=True)
while True:
    try:
        request = os.read(fd, 1 << 20)
    except OSError:
        break
    _, opcode, unique, node = struct.unpack_from('<IIQQ', request)
    body = request[40:]
    if opcode == 26:
        answer(unique, 0, struct.pack('<4I2H2I2HI7I', 7, 31, 65536, 0, 12, 9, 65536, 1, 32, 0, 0, *[0] * 7))
    elif opcode == 1:
        found = number(body.rstrip(b'\\0'))
        if found is None:
            answer(unique, 2)
        else:
            answer(unique, 0, struct.pack('<4Q2I', found, 0, 0, 0, 0, 0) + attributes(found))
    elif opcode == 3:
        answer(unique, 0, struct.pack('<Q2I', 0, 0, 0) + attributes(node))
    elif opcode in (14, 27):
        answer(unique, 0, struct.pack('<Q2I', 0, opcode == 14, 0))
    elif opcode == 15:
        _, offset, size = struct.unpack_from('<QQI', body)
        content = (b'%-15s|' % source.encode()) * ((LARGE + 16) // 16)
        answer(unique, 0, content[:files[names[node - 2]][1]][offset:offset + size])
    elif opcode == 28:
        _, offset, size = struct.unpack_from('<QQI', body)
        there = listed(node)
        if there is None:
            answer(unique, 2)
            continue
        out = b''
        for at, name in list(enumerate(there))[offset:]:
            entry = struct.pack('<QQII', number(name), at + 1, len(name), 0) + name
            out += entry + b'\\0' * (-len(entry) % 8)
        answer(unique, 0, out if len(out) <= size else out[:0])
    elif opcode in (18, 29):
        answer(unique)
    elif opcode == 17:
        answer(unique, 0, struct.pack('<5Q4I6I', 1000, 900, 900, 1000, 900, 4096, 255, 4096, 0, *[0] * 6))
    elif opcode not in (2, 36, 42):
        answer(unique, 38)
";

/// A bench that may mount by FUSE, and where.
fn bench_with_fuse() -> Option<(Bench, PathBuf, PathBuf)> {
    if !Path::new("/dev/fuse").exists() {
        skipped("mounting needs /dev/fuse");
        return None;
    }
    let bench = bench_with(&["python3"])?;
    bench.sh("mkdir m; : >hidden");
    let (place, hidden) = (bench.path("m"), bench.path("hidden"));
    Some((bench, place, hidden))
}

/// Another server, with inodes of the same numbers, sizes and times.
#[test]
fn what_was_mounted_tells_file_systems_of_programs_apart() {
    let Some((bench, place, hidden)) = bench_with_fuse() else {
        return;
    };
    bench.ok(&["init"]);
    for source in ["first", "second"] {
        let unmount = Unmount(&bench);
        let words = [place.as_os_str(), hidden.as_os_str(), source.as_ref()];
        let _server = Beside::start(LYING, &words);
        bench.run(&["backup", "m"]);
        let address = format!("latest:{}/honest", place.display());
        let dumped = bench.ok(&["dump", &address]).text();
        assert!(dumped.starts_with(source), "{source}: {dumped}");
        drop(unmount);
    }
}

#[test]
fn what_a_file_system_says_and_does_not_give_is_named() {
    let Some((bench, place, hidden)) = bench_with_fuse() else {
        return;
    };
    let _unmount = Unmount(&bench);
    let words = [place.as_os_str(), hidden.as_os_str(), "lying".as_ref()];
    let _server = Beside::start(LYING, &words);
    bench.ok(&["init"]);
    let lies = [
        "broken",
        "empty",
        "large-less",
        "large-more",
        "less",
        "more",
    ];
    let lies: BTreeSet<String> = lies.map(str::to_owned).into();
    let ran = bench.run(&["backup", "m", "--json"]);
    assert_eq!((ran.code, named(&ran)), (3, lies.clone()), "{ran}");
    for (name, bytes) in [("honest", 10), ("steady", 5), ("large", 2 << 20)] {
        let address = format!("latest:{}/{name}", place.display());
        assert_eq!(bench.ok(&["dump", &address]).out.len(), bytes, "{name}");
    }

    bench.sh("printf steady >hidden");
    let ran = bench.run(&["backup", "m", "--json"]);
    let mut told = lies;
    told.insert("steady".to_owned());
    assert_eq!((ran.code, named(&ran)), (3, told), "{ran}");
}
