use super::*;

fn refused(text: &str) -> String {
    parse(Path::new("/etc/bale/bale.toml"), text.as_bytes())
        .unwrap_err()
        .to_string()
}

fn read_as(text: &str) -> ProfileFile {
    parse(Path::new("bale.toml"), text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn values_come_with_their_lines() {
    let file = read_as(
        "# comment\n[profile.home]\nsources = [\n  \"/home\",\n  \"/etc\",\n]\n\n\
         [profile.home.forget]\nkeep-daily = 7\nkeep-last = \"unlimited\"\n[profile.home.prune]\n",
    );
    let home = &file.profiles["home"];
    assert_eq!(home.at.to_string(), "bale.toml:2");
    let sources = &home.values[&(ProfileTable::Profile, "sources")];
    assert_eq!(sources.line, 3);
    assert_eq!(
        sources.texts,
        [("/home".to_owned(), 4), ("/etc".to_owned(), 5)]
    );
    let daily = &home.values[&(ProfileTable::Forget, "keep-daily")];
    assert_eq!(daily.texts, [("7".to_owned(), 9)]);
    assert!(
        home.steps.contains(&ProfileTable::Prune),
        "an empty table is a step"
    );
    assert!(!home.steps.contains(&ProfileTable::Check));
}

#[test]
fn an_unknown_word_is_refused_with_its_line_and_the_nearest_known_one() {
    for (text, expected) in [
        (
            "[profile.home]\n[profile.home.backup]\nexlude = \"x\"\n",
            "/etc/bale/bale.toml:3: profile.home.backup: unknown word \"exlude\": did you mean \
             \"exclude\"?",
        ),
        (
            "[profile.home]\nsource = \"/home\"\n",
            "/etc/bale/bale.toml:2: profile.home: unknown word \"source\": did you mean \"sources\"?",
        ),
        (
            "[profile.home.bakcup]\n",
            "/etc/bale/bale.toml:1: profile.home: unknown word \"bakcup\": did you mean \"backup\"?",
        ),
        (
            "\n[profile.home]\nkeep-daily = 7\n",
            "/etc/bale/bale.toml:3: profile.home: unknown word \"keep-daily\": it belongs into \
             [profile.home.forget]",
        ),
        (
            "[profile.home.check]\nrepository = \"/srv\"\n",
            "/etc/bale/bale.toml:2: profile.home.check: unknown word \"repository\": it belongs \
             into [profile.home]",
        ),
        (
            "[profile.home.backup]\nhost = \"web1\"\n",
            "/etc/bale/bale.toml:2: profile.home.backup: unknown word \"host\": it belongs into \
             [profile.home] or [profile.home.forget]",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
    assert!(refused("[profiles.home]\n").contains("did you mean \"profile\"?"));
    assert!(refused("[profile.home]\nzzzz = 1\n").ends_with("unknown word \"zzzz\""));
}

#[test]
fn a_password_in_the_file_is_refused_with_what_to_write_instead() {
    for text in [
        "[profile.home]\npassword = \"secret\"\n",
        "[profile.home.backup]\nkey = \"secret\"\n",
    ] {
        let refused = refused(text);
        assert!(refused.contains("password-file = "), "{refused}");
        assert!(refused.contains(":2: "), "{refused}");
    }
    let refused = refused("[profile.home]\nrepository = \"rest:https://a:secret@host/x\"\n");
    assert!(
        refused.contains("login-file = ") && !refused.contains("secret@"),
        "{refused}"
    );
}

#[test]
fn what_is_no_toml_is_refused_with_its_line() {
    for text in [
        "[profile.home]\nsources = [\n",
        "[profile.home]\nsources = \"/a\"\nsources = \"/b\"\n",
        "\n[profile.home\n",
        "[profile.home]\nhost = \"a\n\"\n",
    ] {
        let refused = refused(text);
        assert!(!refused.contains('\n'), "one line: {refused:?}");
        let line = refused
            .strip_prefix("/etc/bale/bale.toml:")
            .unwrap_or_default();
        assert!(line.starts_with(['1', '2', '3', '4']), "{refused}");
    }
    let bytes = b"[profile.home]\n# gr\xfcn\n";
    let refused = parse(Path::new("f"), bytes).unwrap_err().to_string();
    assert_eq!(refused, "f:2: not UTF-8");
    let long = vec![b'#'; PROFILE_FILE_BYTES_MAX as usize + 1];
    assert!(parse(Path::new("f"), &long).is_err());
}

#[test]
fn values_of_another_kind_are_refused() {
    for (text, why) in [
        ("[profile.h]\nsources = 7\n", "a list of them"),
        ("[profile.h]\nsources = [\"/a\", 7]\n", "a list of them"),
        ("[profile.h]\nsources = \"home\"\n", "whole path"),
        ("[profile.h]\nhost = [\"a\"]\n", "one string"),
        ("[profile.h]\nhost = \"\"\n", "is empty"),
        (
            "[profile.h]\n[profile.h.backup]\nexclude-caches = \"yes\"\n",
            "true or false",
        ),
        ("[profile.h]\nbackup = 7\n", "unknown word"),
        ("[profile]\nh = 7\n", "no table"),
        ("profile = 7\n", "[profile.NAME]"),
        ("[profile.\"a b\"]\n", "cannot be called"),
        ("[profile.\"../x\"]\n", "cannot be called"),
        ("[profile.-x]\n", "cannot be called"),
    ] {
        let refused = refused(text);
        assert!(refused.contains(why), "{text:?}: {refused}");
    }
}
