//! DuckDB reads an exported catalog, so anybody can.

use crate::catalog_seam::{Memory, SMALL, change, file, open, put};
use bale_format::{ChunkId, Content, Entry, Key};
use bale_repository::catalog::{KeyRange, export};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A Python that has DuckDB, in an environment of its own.
fn python_with_duckdb(directory: &Path) -> Result<PathBuf, String> {
    let python = directory.join("venv/bin/python");
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    if run(Path::new("python3"), &["-c", "import duckdb"]).is_ok() {
        return Ok("python3".into());
    }
    let venv = directory.join("venv");
    run(
        Path::new("python3"),
        &["-m", "venv", venv.to_str().unwrap()],
    )?;
    run(&python, &["-m", "pip", "install", "--quiet", "duckdb"])?;
    Ok(python)
}

const QUERY: &str = "
import duckdb, sys
rows = duckdb.sql(f'''
    SELECT count(*), sum(size)::BIGINT, sum(octet_length(name))::BIGINT, min(mtime_s), max(inode), \
    count(DISTINCT parent),
           count(*) FILTER (octet_length(chunk) = 32), sum((mode = 420)::INT)::BIGINT
    FROM read_parquet('{sys.argv[1]}/*.parquet')
''').fetchall()
print(*rows[0])
first = duckdb.sql(f\"SELECT decode(parent), decode(name) FROM \
read_parquet('{sys.argv[1]}/*.parquet') WHERE size = 1234\").fetchall()
print(*first[0])
";

#[test]
fn duckdb_sums_an_exported_catalog_as_we_do() {
    let entries = (0..5000u64).map(|number| {
        let path = format!("home/d{:03}/f{number:05}", number / 40);
        let mut entry = file(&Key::of_path(path.as_bytes()), number);
        entry.mtime.seconds = -(number as i64);
        entry.inode = u64::from(u32::MAX) * number;
        entry.mode = if number % 3 == 0 { 0o644 } else { 0o755 };
        if number % 2 == 0 {
            let chunk = ChunkId([number as u8; 32]);
            entry.content = Content::Bundled {
                chunk,
                offset: number as u32,
            };
        }
        entry
    });
    let memory = Arc::new(Memory::default());
    let mut rows: BTreeMap<Key, Entry> = entries.map(|entry| (entry.key(), entry)).collect();
    let layers = change(&memory, &[], SMALL, &put(rows.values().cloned()));
    let gone: Vec<Key> = rows.keys().step_by(1000).cloned().collect();
    gone.iter().for_each(|key| drop(rows.remove(key)));
    let layers = change(
        &memory,
        &layers,
        SMALL,
        &gone.into_iter().map(|key| (key, None)).collect(),
    );
    assert_eq!(
        layers.len(),
        2,
        "a removed row must be hidden, not just absent"
    );

    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let exported = export(&open(&memory, &layers), KeyRange::all(), &out).unwrap();
    assert_eq!(exported.rows, 4995);
    assert!(
        export(&open(&memory, &layers), KeyRange::all(), &out).is_err(),
        "files are never overwritten"
    );

    let python = match python_with_duckdb(directory.path()) {
        Ok(python) => python,
        Err(error) if std::env::var("BALE_REQUIRE_ALL_TESTS").as_deref() == Ok("1") => {
            panic!("duckdb: {error}")
        }
        Err(error) => return eprintln!("SKIPPED: duckdb cannot be installed: {error}"),
    };
    let output = Command::new(python)
        .args(["-c", QUERY])
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let sum = |of: fn(&Entry) -> u64| rows.values().map(of).sum::<u64>();
    let parents: std::collections::BTreeSet<_> = rows.values().map(|entry| &entry.parent).collect();
    let expected = format!(
        "{} {} {} {} {} {} {} {}\nhome/d030 f01234\n",
        rows.len(),
        sum(|entry| entry.size),
        sum(|entry| entry.name.len() as u64),
        rows.values()
            .map(|entry| entry.mtime.seconds)
            .min()
            .unwrap(),
        rows.values().map(|entry| entry.inode).max().unwrap(),
        parents.len(),
        rows.values()
            .filter(|entry| entry.content != Content::None)
            .count(),
        rows.values().filter(|entry| entry.mode == 0o644).count(),
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
