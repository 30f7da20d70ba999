//! The life of a repository that is no directory, whatever its store: every command that a week
//! has.

use crate::bench::{Bench, Ran};

/// From the first `init` to a prune, at this location and with these variables. The password is in
/// the file `pw`.
pub fn lives(bench: &Bench, repository: &str, variables: &[(&str, &str)]) {
    bench.write("pw", "secret");
    let run = |words: &[&str]| -> Ran {
        let mut command = bench.command();
        command.args([words, &["-p", "pw", "-r", repository]].concat());
        command.envs(variables.iter().copied());
        Ran::from(command.output().unwrap())
    };
    let ok = |words: &[&str]| {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    };

    let absent = run(&["snapshots"]);
    assert_eq!(absent.code, 10, "{absent}");
    assert!(absent.err.contains("bale init -r"), "{absent}");

    ok(&["init"]);
    assert!(run(&["init"]).err.contains("already"));
    bench.write("source/one", "1".repeat(100_000));
    bench.write("source/deep/two", "2");
    ok(&["backup", "source"]);
    bench.write("source/deep/three", "3".repeat(70_000));
    let second = ok(&["backup", "source", "--json"]).summary();
    assert_eq!(second["files_new"], 1, "{second}");
    ok(&["check", "--read-data"]);
    ok(&["ls", "latest"]);
    ok(&["key", "list"]);
    ok(&["restore", &bench.address(""), "--target", "back"]);
    bench.sh("diff -r source back");
    ok(&["forget", "--keep-last", "1", "--prune"]);
    ok(&["check", "--read-data"]);
    let left = ok(&["snapshots", "--json"]);
    assert_eq!(left.objects().len(), 1, "{left}");
}
