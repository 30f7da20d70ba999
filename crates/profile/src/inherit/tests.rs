use super::*;
use std::path::Path;

fn profiles(text: &str) -> Profiles {
    let file = crate::file::parse(Path::new("f"), text.as_bytes());
    Profiles::of(vec![file.unwrap_or_else(|error| panic!("{error}"))])
}

fn texts(profile: &Profile, table: ProfileTable, word: &str) -> Vec<String> {
    let shown = |text: &ResolvedText| format!("{} {} {}", text.text, text.profile, text.at.line);
    profile.texts(table, word).iter().map(shown).collect()
}

#[test]
fn what_a_profile_says_itself_counts_most_and_of_several_the_last() {
    let all = profiles(
        "[profile.a]\ntemplate = true\nhost = \"a\"\nmemory = \"1G\"\nrepository = \"/a\"\n\
         [profile.b]\ninherit = \"a\"\ntemplate = true\nhost = \"b\"\n\
         [profile.c]\ntemplate = true\nmemory = \"2G\"\n\
         [profile.d]\ninherit = [\"b\", \"c\"]\nsources = \"/d\"\n[profile.d.prune]\n",
    );
    let found = all.resolve("d").unwrap();
    let of = |word| texts(&found, ProfileTable::Profile, word);
    assert_eq!(of("host"), ["b b 9"]);
    assert_eq!(of("memory"), ["2G c 12"]);
    assert_eq!(of("repository"), ["/a a 5"]);
    assert_eq!(of("sources"), ["/d d 15"]);
    assert!(
        !found.is_template(),
        "it is of the profile alone that says it"
    );
    assert!(found.has_step(ProfileTable::Prune) && !found.has_step(ProfileTable::Check));
}

#[test]
fn three_dots_in_a_list_stand_for_what_is_inherited() {
    let all = profiles(
        "[profile.a.backup]\nexclude = [\"1\", \"2\"]\ntag = \"t\"\n\
         [profile.b]\ninherit = \"a\"\nsources = \"/b\"\n\
         [profile.b.backup]\nexclude = [\"0\", \"...\", \"3\", \"...\"]\ntag = \"u\"\n",
    );
    let found = all.resolve("b").unwrap();
    assert_eq!(
        texts(&found, ProfileTable::Backup, "exclude"),
        ["0 b 8", "1 a 2", "2 a 2", "3 b 8"]
    );
    assert_eq!(texts(&found, ProfileTable::Backup, "tag"), ["u b 9"]);
}

#[test]
fn who_names_a_secret_does_not_mean_the_one_he_inherits() {
    let all = profiles(
        "[profile.a]\nkey-file = \"/a\"\n[profile.a.check]\nread-data = true\n\
         [profile.b]\ninherit = \"a\"\nsources = \"/b\"\npassword-file = \"/b\"\n\
         [profile.b.check]\nread-data-subset = \"next/7\"\n\
         [profile.c]\ninherit = \"a\"\nsources = \"/c\"\nkey-file = false\n",
    );
    let found = all.resolve("b").unwrap();
    assert!(found.texts(ProfileTable::Profile, "key-file").is_empty());
    assert!(!found.is_on(ProfileTable::Check, "read-data"));
    let found = all.resolve("c").unwrap();
    assert!(
        found.texts(ProfileTable::Profile, "key-file").is_empty(),
        "switched off"
    );
}

/// A template says how backups are made; who inherits it to prune makes none.
#[test]
fn a_table_for_backup_that_is_inherited_makes_no_backup() {
    let all = profiles(
        "[profile.a]\ntemplate = true\n[profile.a.backup]\nexclude = \"x\"\n\
         [profile.b]\ninherit = \"a\"\n[profile.b.prune]\n\
         [profile.c]\ninherit = \"a\"\nsources = \"/c\"\n",
    );
    let steps = |name| all.resolve(name).unwrap().steps().collect::<Vec<_>>();
    assert_eq!(steps("b"), [ProfileTable::Prune]);
    assert_eq!(steps("c"), [ProfileTable::Backup]);
}

#[test]
fn circles_are_refused_with_a_line() {
    let all = profiles(
        "[profile.a]\ninherit = \"b\"\n[profile.b]\ninherit = [\"c\"]\n\
         [profile.c]\ninherit = \"a\"\n[profile.self]\ninherit = \"self\"\n",
    );
    let refused = all.resolve("a").unwrap_err().to_string();
    assert_eq!(
        refused,
        "f:6: a circle: a inherits from b inherits from c inherits from a"
    );
    assert!(
        all.resolve("self")
            .unwrap_err()
            .to_string()
            .contains("a circle")
    );
}

#[test]
fn inheritance_that_doubles_at_every_step_comes_to_an_end() {
    let mut text = "[profile.p0]\n".to_owned();
    for level in 1..60 {
        let below = level - 1;
        text += &format!("[profile.p{level}]\ninherit = [\"p{below}\", \"p{below}\"]\n");
    }
    let refused = profiles(&text).resolve("p59").unwrap_err().to_string();
    assert!(refused.contains("more than 64 profiles"), "{refused}");
}

#[test]
fn a_profile_that_is_not_there_is_named_with_the_nearest() {
    let all = profiles("[profile.home]\ninherit = \"bsae\"\n[profile.base]\n");
    let refused = all.resolve("hoem").unwrap_err().to_string();
    assert!(refused.contains("did you mean \"home\"?"), "{refused}");
    assert!(refused.contains("(there are: base, home)"), "{refused}");
    let refused = all.resolve("home").unwrap_err().to_string();
    assert!(refused.starts_with("f:2: inherit: "), "{refused}");
    assert!(refused.contains("did you mean \"base\"?"), "{refused}");
}

#[test]
fn a_later_file_stands_for_an_earlier_one_profile_by_profile() {
    let file = |name: &str, text: &str| crate::file::parse(Path::new(name), text.as_bytes());
    let system = file(
        "system",
        "[profile.a]\nsources = \"/1\"\n[profile.b]\nhost = \"b\"\n",
    );
    let user = file("user", "[profile.a]\nsources = \"/2\"\ninherit = \"b\"\n");
    let all = Profiles::of(vec![system.unwrap(), user.unwrap()]);
    let found = all.resolve("a").unwrap();
    assert_eq!(texts(&found, ProfileTable::Profile, "sources"), ["/2 a 2"]);
    assert_eq!(
        found.texts(ProfileTable::Profile, "host")[0].at.to_string(),
        "system:4"
    );
}
