//! What each crate says of itself, so that it could be published, and what may depend on what.

use crate::sources::{must_be_empty, repository};

/// Name of the directory and text of the manifest of each crate.
fn manifests() -> Vec<(String, String)> {
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        manifests.push((name, manifest));
    }
    assert!(manifests.len() > 15, "tidy sees {} crates", manifests.len());
    manifests
}

#[test]
fn each_crate_has_what_a_registry_asks_for() {
    let inherited = [
        "version",
        "edition",
        "rust-version",
        "license",
        "repository",
        "readme",
        "keywords",
        "categories",
    ];
    let mut findings = Vec::new();
    for (name, manifest) in manifests() {
        for word in inherited {
            if !manifest.contains(&format!("\n{word}.workspace = true\n")) {
                findings.push(format!("{name}: {word}.workspace = true"));
            }
        }
        if !manifest.contains("\ndescription = \"") {
            findings.push(format!("{name}: a description"));
        }
    }
    must_be_empty(&findings, "say in crates/NAME/Cargo.toml:");
}

/// A registry takes no crate whose dependencies have a path alone. Those of tests are left out of
/// what is published if they have no version.
#[test]
fn crates_of_ours_are_named_by_version_and_path() {
    let workspace = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let version = workspace.split("\nversion = ").nth(1).unwrap();
    let version = version.lines().next().unwrap();
    let mut findings = Vec::new();
    let ours = workspace
        .lines()
        .filter(|line| line.starts_with("bale-") && line.contains(" = {"));
    for line in ours {
        let is_published = !line.starts_with("bale-testkit ");
        if line.contains(&format!("version = {version}")) != is_published {
            findings.push(line.to_owned());
        }
    }
    must_be_empty(
        &findings,
        "name the version of the workspace, but of testkit none:",
    );
}

/// Whatever keeps last copies holds nothing that measures it beside others.
#[test]
fn nothing_depends_on_the_comparison() {
    let all = manifests().into_iter();
    let depends = |(name, manifest): &(String, String)| {
        name != "compare" && manifest.contains("bale-compare")
    };
    let findings: Vec<_> = all.filter(depends).map(|(name, _)| name).collect();
    must_be_empty(&findings, "take bale-compare out of its dependencies:");
}
