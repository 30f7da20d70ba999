//! Images of QEMU's formats: read as they are, and never a file that their owner did not mean.

use crate::peer::{chain, connect, extents, have_all, run, sparse_file};
use bale_nbd::{ImageFormat, NbdClient, NbdClientOptions, QemuImage, QemuImageOptions};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

fn convert(raw: &Path, format: &str, to: &Path) -> PathBuf {
    let (from, name) = (raw.to_str().unwrap(), to.to_str().unwrap());
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", format, from, name],
    );
    to.to_owned()
}

fn open(path: &Path, format: ImageFormat) -> Result<QemuImage, String> {
    QemuImage::open(path, format, &QemuImageOptions::default()).map_err(|error| chain(&error))
}

fn content(image: &QemuImage) -> Vec<u8> {
    let client = connect(image.uri());
    let mut found = vec![0xee; client.len() as usize];
    client.read_at(0, &mut found).unwrap();
    found
}

/// No process of that number, or one that is only to be reaped.
fn has_ended(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

#[test]
fn images_of_every_format_are_read_as_they_are() {
    if !have_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let raw = sparse_file(
        &dir.path().join("raw"),
        20 * MIB,
        &[(0, 100_000), (9 * MIB, 1 << 20)],
    );
    let expected = std::fs::read(&raw).unwrap();
    for format in [
        ImageFormat::Qcow2,
        ImageFormat::Vmdk,
        ImageFormat::Vdi,
        ImageFormat::Vhdx,
    ] {
        let name = dir.path().join(format!("disk.{}", format.name()));
        let path = convert(&raw, format.name(), &name);
        assert_eq!(ImageFormat::by_name(&path), Some(format));
        let image = open(&path, format).unwrap();
        assert!(content(&image) == expected, "{format:?}");
        let client = connect(image.uri());
        assert!(client.is_read_only());
        let data: u64 = extents(&client)
            .iter()
            .filter(|it| !it.is_zero)
            .map(|it| it.bytes)
            .sum();
        // QEMU does not say what is allocated in a VHDX.
        assert!(
            data < 6 * MIB || format == ImageFormat::Vhdx,
            "{format:?}: {data}"
        );
        // One after the other, and several at once.
        let several = NbdClientOptions {
            connections: 4,
            ..NbdClientOptions::default()
        };
        drop(NbdClient::connect(image.uri(), &several).unwrap());
        assert!(content(&image) == expected, "{format:?}");
        let process = image.process_id();
        drop((image, client));
        assert!(has_ended(process));
    }
}

#[test]
fn a_format_is_what_was_said_and_never_what_the_bytes_look_like() {
    if !have_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let raw = sparse_file(&dir.path().join("raw"), MIB, &[(0, 4096)]);
    for format in [
        ImageFormat::Qcow2,
        ImageFormat::Vmdk,
        ImageFormat::Vdi,
        ImageFormat::Vhdx,
    ] {
        let text = open(&raw, format).err().unwrap();
        assert!(
            text.ends_with(&format!("it is no {} image", format.name())),
            "{text}"
        );
    }
    let damaged = convert(&raw, "qcow2", &dir.path().join("damaged.qcow2"));
    let mut bytes = std::fs::read(&damaged).unwrap();
    // The table of its clusters is nowhere.
    bytes[40..48].fill(0x7f);
    std::fs::write(&damaged, bytes).unwrap();
    let text = open(&damaged, ImageFormat::Qcow2).err().unwrap();
    assert!(
        text.contains("qemu-nbd does not open") && text.contains("L1"),
        "{text}"
    );
    let options = QemuImageOptions {
        program: "no-such-program".into(),
        ..QemuImageOptions::default()
    };
    let good = convert(&raw, "qcow2", &dir.path().join("good.qcow2"));
    let text = chain(
        &QemuImage::open(&good, ImageFormat::Qcow2, &options)
            .err()
            .unwrap(),
    );
    assert!(text.contains("no-such-program"), "{text}");
}

#[test]
fn what_an_image_is_based_on_is_followed_in_its_directory_and_nowhere_else() {
    if !have_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let raw = sparse_file(&dir.path().join("raw"), MIB, &[(0, 1 << 20)]);
    let expected = std::fs::read(&raw).unwrap();
    let secret = sparse_file(&elsewhere.path().join("secret"), MIB, &[(5, 4096)]);
    convert(&raw, "qcow2", &dir.path().join("base.qcow2"));
    std::os::unix::fs::symlink(&secret, dir.path().join("link")).unwrap();
    let based_on = |name: &str, format: Option<&str>| {
        let path = dir.path().join("top.qcow2");
        let top = path.to_str().unwrap();
        run("qemu-img", &["create", "-q", "-f", "qcow2", top, "1M"]);
        let mut words = vec!["rebase", "-u", "-f", "qcow2", "-b", name];
        words.extend(format.into_iter().flat_map(|format| ["-F", format]));
        let made = std::process::Command::new("qemu-img")
            .args(words)
            .arg(top)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        path
    };
    for (name, format) in [("base.qcow2", "qcow2"), ("raw", "raw")] {
        let image = open(&based_on(name, Some(format)), ImageFormat::Qcow2).unwrap();
        assert!(content(&image) == expected, "{name}");
    }
    let absolute = secret.to_str().unwrap();
    let json = format!("json:{{\"driver\":\"raw\",\"file.filename\":\"{absolute}\"}}");
    let out = format!(
        "../{}/secret",
        elsewhere.path().file_name().unwrap().to_str().unwrap()
    );
    for name in [
        absolute,
        "link",
        &out,
        &json,
        "nbd:localhost:1",
        &format!("file:{absolute}"),
    ] {
        let text = open(&based_on(name, Some("raw")), ImageFormat::Qcow2)
            .err()
            .unwrap();
        let is_refused = text.contains("not in its directory") || text.contains("No such file");
        assert!(is_refused, "{name}: {text}");
    }
    let allowing = QemuImageOptions {
        allows_files_elsewhere: true,
        ..QemuImageOptions::default()
    };
    let path = based_on(absolute, Some("raw"));
    let image = QemuImage::open(&path, ImageFormat::Qcow2, &allowing).unwrap();
    assert!(content(&image) == std::fs::read(&secret).unwrap());
    drop(image);
    let path = based_on("top.qcow2", Some("qcow2"));
    let text = open(&path, ImageFormat::Qcow2).err().unwrap();
    assert!(text.contains("have no end"), "{text}");
}

#[test]
fn data_in_another_file_is_followed_by_the_same_rule() {
    if !have_all(&["qemu-nbd", "qemu-img", "qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let with_data_at = |data: &Path| {
        let path = dir.path().join("disk.qcow2");
        let option = format!("data_file={},data_file_raw=on", data.display());
        run(
            "qemu-img",
            &[
                "create",
                "-q",
                "-f",
                "qcow2",
                "-o",
                &option,
                path.to_str().unwrap(),
                "1M",
            ],
        );
        run(
            "qemu-io",
            &[
                "-f",
                "qcow2",
                "-c",
                "write -P 0x5a 0 64k",
                path.to_str().unwrap(),
            ],
        );
        path
    };
    let image = open(
        &with_data_at(&dir.path().join("data.raw")),
        ImageFormat::Qcow2,
    )
    .unwrap();
    let found = content(&image);
    assert!(found[..65536].iter().all(|byte| *byte == 0x5a));
    drop(image);
    let path = with_data_at(&elsewhere.path().join("data.raw"));
    let text = open(&path, ImageFormat::Qcow2).err().unwrap();
    assert!(text.contains("not in its directory"), "{text}");
}

#[test]
fn files_that_a_vmdk_names_are_followed_by_the_same_rule() {
    if !have_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let raw = sparse_file(&dir.path().join("raw"), MIB, &[(0, 1 << 20)]);
    let secret = sparse_file(&elsewhere.path().join("secret"), MIB, &[(5, 4096)]);
    let path = dir.path().join("flat.vmdk");
    let (from, to) = (raw.to_str().unwrap(), path.to_str().unwrap());
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "vmdk",
            "-o",
            "subformat=monolithicFlat",
            from,
            to,
        ],
    );
    let image = open(&path, ImageFormat::Vmdk).unwrap();
    assert!(content(&image) == std::fs::read(&raw).unwrap());
    drop(image);
    let text = std::fs::read_to_string(&path).unwrap();
    for name in [secret.to_str().unwrap(), "nbd:localhost:1", "../x"] {
        std::fs::write(&path, text.replace("flat-flat.vmdk", name)).unwrap();
        let refused = open(&path, ImageFormat::Vmdk).err().unwrap();
        let words = match name.contains(':') {
            true => "not take for the name of a file",
            false => "not in its directory",
        };
        assert!(refused.contains(words), "{name}: {refused}");
    }
    // It ends with zeroes, and what is behind them nobody sees.
    let text = text.trim_end_matches('\0');
    let parent = format!("{text}\nparentFileNameHint=\"{}\"\n", secret.display());
    std::fs::write(&path, parent).unwrap();
    let refused = open(&path, ImageFormat::Vmdk).err().unwrap();
    assert!(refused.contains("not in its directory"), "{refused}");
}

/// Holds an image until it is killed; started by the test below.
#[test]
#[ignore = "a part of another test"]
fn holds_an_image_until_it_is_killed() {
    let Some(path) = std::env::var_os("BALE_TEST_IMAGE") else {
        return;
    };
    let image = open(Path::new(&path), ImageFormat::Qcow2).unwrap();
    println!("process {}", image.process_id());
    std::io::Write::flush(&mut std::io::stdout()).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn the_process_ends_when_its_starter_is_killed() {
    if !have_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let raw = sparse_file(&dir.path().join("raw"), MIB, &[(0, 4096)]);
    let path = convert(&raw, "qcow2", &dir.path().join("disk.qcow2"));
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "qemu_images::holds_an_image_until_it_is_killed",
        ])
        .env("BALE_TEST_IMAGE", &path)
        .env("TMPDIR", dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(holder.stdout.take().unwrap());
    let process = std::io::BufRead::lines(output)
        .map(Result::unwrap)
        .find_map(|line| {
            line.split_once("process ")
                .map(|(_, number)| number.parse().unwrap())
        })
        .unwrap();
    assert!(!has_ended(process));
    holder.kill().unwrap();
    holder.wait().unwrap();
    while !has_ended(process) {
        std::thread::yield_now();
    }
}
