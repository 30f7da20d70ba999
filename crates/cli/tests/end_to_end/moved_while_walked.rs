//! What moves, while a walk is under way, from where it has not been to where it has been: the
//! snapshot before knows of it.

use super::walking::{Beside, Unmount, bench_with, named};
use std::collections::BTreeSet;

/// Does something when a directory is opened for the first time, and lets whoever opens it wait.
const WATCHING: &str = "
import ctypes, os, struct, sys, time
directory, deed = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
CLASS_CONTENT, OPEN_PERM, ONDIR, ADD, HERE = 4, 0x10000, 0x40000000, 1, -100
fan = libc.fanotify_init(CLASS_CONTENT, os.O_RDONLY)
mark = libc.fanotify_mark
mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
if fan < 0 or mark(fan, ADD, OPEN_PERM | ONDIR, HERE, directory.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print('watching', flush=True)
is_done = False
while True:
    events = os.read(fan, 4096)
    while events:
        length, _, _, _, _, opened, _ = struct.unpack_from('<IBBHQii', events)
        events = events[length:]
        if not is_done:
            # What was opened before is listed by then.
            time.sleep(0.3)
            exec(deed)
            is_done = True
        os.write(fan, struct.pack('<iI', opened, 1))
        os.close(opened)
";

#[test]
fn what_moves_to_where_a_walk_has_been_is_named_and_nothing_else() {
    let kinds = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
    let Some(bench) = bench_with(&[&kinds[..], &["python3"]].concat()) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.ok(&["init"]);
    for mkfs in kinds {
        bench.sh(&format!(
            "mkdir m; truncate -s 400M image; {mkfs} -q image; mount -o loop image m; cd m
             mkdir -p s/a s/z/y/x/late/sub out; echo 1 >s/a/linked; ln s/a/linked s/z/y/x/late/
             for name in file sub/inner left; do echo $name >s/z/y/x/late/$name; done"
        ));
        let late = bench.path("m/s/z/y/x/late");
        let backup = |deed: &str| {
            let deed = format!("os.chdir({:?}); {deed}", bench.path("m/s"));
            let watch = Beside::start(WATCHING, &[late.as_os_str(), deed.as_ref()]);
            let ran = bench.run(&["backup", "--scan", "walk", "m/s", "--json"]);
            drop(watch);
            (ran.code, named(&ran), ran)
        };
        let nothing = BTreeSet::new();
        let (code, named, ran) = backup("");
        assert_eq!((code, &named), (0, &nothing), "{mkfs}: {ran}");

        let deed =
            "L = 'z/y/x/late/'; os.rename(L + 'file', 'a/file'); os.rename(L + 'sub', 'a/sub')";
        let (code, named, ran) = backup(deed);
        let moved = ["file", "sub"].map(str::to_owned).into();
        assert_eq!((code, named), (3, moved), "{mkfs}: {ran}");

        let (code, named, ran) = backup("os.remove('z/y/x/late/linked')");
        assert_eq!((code, &named), (0, &nothing), "{mkfs}: {ran}");
        let address = format!("latest:{}", bench.path("m/s/a/sub/inner").display());
        assert_eq!(bench.ok(&["dump", &address]).text(), "sub/inner\n");

        bench.sh("mv m/s/z/y/x/late/left m/out/; mv m/s/a/file m/s/z/; sleep 0.1");
        let (code, named, ran) = backup("");
        assert_eq!((code, &named), (0, &nothing), "{mkfs}: {ran}");
        bench.sh("umount m; rm -r m image");
    }
}
