//! `dump` to a file, and as a zip that other programs read.

use crate::bench::{Bench, have, skipped};
use std::os::unix::fs::PermissionsExt;

/// What python's reader says of a zip: of each member its name as hex, size and mode; and whether
/// all content is as its sum says.
const LIST: &str = "import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.testzip() is None
for i in z.infolist():
    name = i.filename.encode('utf-8' if i.flag_bits & 0x800 else 'cp437')
    print(name.hex(), i.file_size, oct(i.external_attr >> 16), z.read(i)[:40].hex())";

fn python(bench: &Bench, code: &str, words: &[&str]) -> String {
    let mut command = bench.prepared(std::process::Command::new("python3"));
    let output = command.args(["-c", code]).args(words).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_zip_is_the_tree_for_unzip_and_for_python() {
    for tool in ["unzip", "python3"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    let bench = Bench::new();
    bench.sh(
        r#"cd source; mkdir -p 'd/e mpty' d/deep/er; echo one > d/one; chmod 4750 d/one; : > d/empty
        ln -s ../one d/deep/link; ln -s /no/where "$(printf 'd/l\303\244nk')"; chmod 500 d/deep/er
        head -c 3000000 /dev/urandom > d/random; seq 400000 > d/numbers
        truncate -s 9M d/holes; echo data | dd of=d/holes bs=1 seek=5M conv=notrunc status=none
        printf x > "d/$(printf 'odd\377\nname')"; printf y > "d/$(printf 'gr\303\274n')"
        find . -exec touch -h -d '2005-06-07 08:09:11.5' {} +
        touch -d '1999-12-31 23:59:59' d/one"#,
    );
    bench.backup();
    let ran = bench.ok(&[
        "dump",
        &bench.address(""),
        "--archive",
        "zip",
        "--target",
        "t.zip",
    ]);
    assert_eq!((ran.out.len(), ran.err.as_str()), (0, ""), "{ran}");
    // Names as they are, also those with a line's end.
    bench.sh("mkdir out; cd out; unzip -q -K -^ ../t.zip; cd ..; zipinfo t.zip > /dev/null");
    // Modes, times to the second, links, content and names; of times of links unzip keeps none.
    let list = r#"find . -mindepth 1 \( -type l -printf '%P %y %l\n' \) -o \( -type f -printf \
        '%P %y %m %s %Ts\n' \) -o -printf '%P %y %m\n' | LC_ALL=C sort"#;
    bench.sh(&format!(
        "(cd source; {list}) > a; (cd out; {list}) > b; diff a b
        diff -r --no-dereference source out"
    ));
    let listed = python(&bench, LIST, &["t.zip"]);
    let line = |name: &str| {
        let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        listed
            .lines()
            .find(|line| line.starts_with(&hex))
            .map(str::to_owned)
    };
    assert_eq!(
        line("d/one ").or(line("d/one")).unwrap(),
        "642f6f6e65 4 0o104750 6f6e650a"
    );
    assert!(
        line("d/deep/link").unwrap().contains(" 0o120777 "),
        "{listed}"
    );
    assert!(listed.contains("642f6f6464ff0a6e616d65 1 "), "{listed}");
    // To a pipe it is the same archive.
    let piped = bench.ok(&["dump", &bench.address(""), "--archive", "zip"]);
    assert!(piped.out == std::fs::read(bench.path("t.zip")).unwrap());
}

/// What a zip cannot hold is said: what is there in another form as a note, what is not with exit
/// code 3.
#[test]
fn what_a_zip_has_no_place_for_is_named() {
    if !have("python3") {
        return skipped("python3");
    }
    let bench = Bench::new();
    bench.sh("cd source; echo one > one; ln one two; setfattr -n user.a -v b one || true");
    bench.backup();
    let zip = |name: &str| bench.run(&["dump", &bench.address(""), "-a", "zip", "-t", name]);
    let ran = zip("links.zip");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(
        ran.err.contains("hard links") && ran.err.contains("/source/two"),
        "{ran}"
    );
    let names = python(&bench, LIST, &["links.zip"]);
    assert_eq!(names.matches(" 4 0o100644 6f6e650a").count(), 2, "{names}");
    bench.sh("mkfifo source/pipe");
    bench.backup();
    let ran = zip("pipe.zip");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("/source/pipe"), "{ran}");
    assert!(!python(&bench, LIST, &["pipe.zip"]).contains("70697065"));
    let file = bench.run(&[
        "dump",
        &bench.address("/one"),
        "--archive",
        "zip",
        "-t",
        "no.zip",
    ]);
    assert_eq!(file.code, 1, "{file}");
    assert!(
        file.err.contains("an archive is made of a directory"),
        "{file}"
    );
    assert!(!bench.path("no.zip").exists());
}

#[test]
fn a_zip_of_more_members_than_sixteen_bits_count_is_whole() {
    for tool in ["unzip", "python3"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    let bench = Bench::new();
    // Files in an image: making them one by one would take longer than all of the rest.
    let shape = "gen --to-ext4 many.img -d 1 -D 1 -r 1 -R 1 -s 511 -S 700 -P 1 --count 66000";
    let mut words: Vec<&str> = shape.split(' ').collect();
    words.extend(["-f", "66000", "-F", "66000", "--block-size", "1024"]);
    bench.ok(&words);
    bench.ok(&["backup", "--scan", "inode", "many.img"]);
    bench.ok(&["dump", "latest", "-a", "zip", "-t", "many.zip"]);
    bench.ok(&["dump", "latest", "-t", "many.tar"]);
    bench.sh("unzip -tqq many.zip");
    let compare = "import sys, tarfile, zipfile
z = zipfile.ZipFile(sys.argv[1])
t, files = tarfile.open(sys.argv[2]), 0
for member in t:
    if member.isfile():
        name = member.name.removeprefix('./')
        assert z.read(name) == t.extractfile(member).read()
        files += 1
print(files, sum(not name.endswith('/') for name in z.namelist()))";
    assert_eq!(
        python(&bench, compare, &["many.zip", "many.tar"]).trim(),
        "66000 66000"
    );
}

#[test]
#[ignore = "long: deflates and reads back gigabytes of zeros"]
fn a_zip_of_a_file_of_more_than_four_gibibytes_is_whole() {
    for tool in ["unzip", "python3"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    let bench = Bench::new();
    bench.sh(
        "cd source; truncate -s 5G large; echo end | dd of=large bs=1 seek=5G conv=notrunc \
         status=none; echo behind > zz",
    );
    bench.backup();
    bench.ok(&["dump", &bench.address(""), "-a", "zip", "-t", "large.zip"]);
    bench.sh("unzip -tqq large.zip; unzip -p large.zip large | cmp - source/large");
    let sizes = "import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
print(z.getinfo('large').file_size, z.read('zz'))";
    let sizes = python(&bench, sizes, &["large.zip"]);
    assert_eq!(sizes.trim(), format!("{} b'behind\\n'", (5u64 << 30) + 4));
}

fn leftovers(bench: &Bench) -> Vec<String> {
    let names = std::fs::read_dir(bench.path("targets")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_dump_to_a_file_is_whole_or_not_there_and_replaces_nothing_unless_told_to() {
    let bench = Bench::new();
    bench.sh("cd source; echo new > file; head -c 4000000 /dev/urandom > large; mkdir ../targets");
    bench.backup();
    let to = |below: &str, target: &str, more: &[&str]| {
        let address = bench.address(below);
        bench.run(&[&["dump", &address, "--target", target], more].concat())
    };
    let ran = to("/file", "targets/file", &[]);
    assert_eq!((ran.code, ran.out.len()), (0, 0), "{ran}");
    let written = bench.path("targets/file");
    assert_eq!(std::fs::read(&written).unwrap(), b"new\n");
    // Like an exported catalog, it is for its owner alone.
    assert_eq!(
        written.metadata().unwrap().permissions().mode() & 0o7777,
        0o600
    );
    std::fs::write(&written, "old").unwrap();
    let refused = to("/file", "targets/file", &[]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("--force"), "{refused}");
    assert_eq!(std::fs::read(&written).unwrap(), b"old");
    // What fails leaves what was there, and nothing else.
    let missing = to("/missing", "targets/file", &["--force"]);
    assert_eq!(missing.code, 1, "{missing}");
    assert_eq!(std::fs::read(&written).unwrap(), b"old");
    bench.sh(&format!(
        "trap '' XFSZ; ulimit -f 2000; ! {} dump {} -t targets/large 2> err; grep -q 'write' err",
        crate::bench::binary().display(),
        bench.address("/large")
    ));
    assert_eq!(leftovers(&bench), ["file"]);
    assert_eq!(to("/file", "targets/file", &["--force"]).code, 0);
    assert_eq!(std::fs::read(&written).unwrap(), b"new\n");
    // Nothing but a file is replaced, and no link is followed.
    bench.sh("cd targets; mkfifo pipe; ln -s ../elsewhere link; mkdir dir");
    for target in [
        "targets/pipe",
        "targets/link",
        "targets/dir",
        "nowhere/file",
    ] {
        let refused = to("/file", target, &["--force"]);
        assert_eq!(refused.code, 1, "{target}: {refused}");
        assert!(refused.err.contains("--target"), "{target}: {refused}");
    }
    assert!(!bench.path("elsewhere").exists());
    assert_eq!(leftovers(&bench), ["dir", "file", "link", "pipe"]);
    let tar = to("", "targets/t.tar", &["--archive", "tar"]);
    assert_eq!(tar.code, 0, "{tar}");
    bench.sh("tar tf targets/t.tar | grep -qx ./file || tar tf targets/t.tar | grep -qx file");
}
