//! A mount by a user that is not root. Needs root, to be one that is not, and FUSE.
//!
//! A program of its own: it mounts in a namespace.

#[path = "end_to_end/bench.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod bench;

use bench::{Bench, binary, have, is_root, skipped};
use std::fs;
use std::path::Path;

const PROGRAMS: [&str; 3] = ["setpriv", "fusermount3", "unshare"];

/// Like a system where everybody may open `/dev/fuse`, which this one may not be, and another one.
#[test]
fn a_user_that_is_not_root_mounts_with_the_helper_and_is_told_where_that_is_not_allowed() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skipped("mounting for another user needs root and /dev/fuse");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !have(program)) {
        return skipped(missing);
    }
    let bench = Bench::new();
    fs::copy(binary(), bench.path("bale")).unwrap();
    bench.sh(
        r#"chmod 755 .; mkdir own; cd own; mkdir source home mnt; echo text > source/file
        chown -R nobody:nogroup .; top=$PWD
        cat > as_user <<'END'
            set -e
            export HOME=$1/home BALE_PASSWORD=x BALE_INIT=1; cd $1
            ../bale backup -q source
            ../bale mount mnt 2> said & mount=$!
            for n in $(seq 200); do test -e mnt/latest || sleep 0.05; done
            cmp source/file mnt/latest$1/source/file || { cat said; false; }
            fusermount3 -u mnt; wait $mount
END
        cat > in_namespace <<'END'
            set -e
            mknod fuse c 10 229; chmod $2 fuse; mount --bind fuse /dev/fuse
            exec setpriv --reuid nobody --regid nogroup --clear-groups sh as_user $1
END
        unshare -m sh in_namespace $top 666
        rm fuse
        if unshare -m sh in_namespace $top 600; then exit 1; fi
        grep -q 'may not open /dev/fuse' said"#,
    );
}
