//! A tree that is read in several windows, each planned while the one before is handed out, is what
//! its mount shows.

use super::image::{Image, can_run};
use super::snapshots::{Pair, settle};
use bale_testkit::scene::noise;
use std::fs;

/// More than the first window holds, and of sizes that end buckets anywhere.
const FILES: usize = 9_000;
const DIRECTORIES: usize = 60;

fn content(number: usize) -> Vec<u8> {
    noise(number as u64, 1 + number * 7_919 % 20_000)
}

#[test]
fn what_is_read_in_several_windows_is_what_is_there() {
    let test = "what_is_read_in_several_windows_is_what_is_there";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(256, "-t ext4 -N 12000");
    {
        let mounted = image.mount("noatime");
        for number in 0..DIRECTORIES {
            fs::create_dir(mounted.path.join(number.to_string())).unwrap();
        }
        // Not in the order of the catalog: that of the device is another one.
        for number in 0..FILES {
            let directory = (number * 31 % DIRECTORIES).to_string();
            let path = mounted.path.join(directory).join(number.to_string());
            fs::write(path, content(number)).unwrap();
        }
        // Further names are not planned.
        for number in 0..100 {
            let from = mounted.path.join((number * 31 % DIRECTORIES).to_string());
            let to = mounted.path.join(format!("0/again{number}"));
            fs::hard_link(from.join(number.to_string()), to).unwrap();
        }
    }
    settle(&image.path);
    let pair = Pair::new();
    let walk = |pair: &Pair| pair.walk(&image.mount("ro,noload").path);
    pair.assert_same(walk, &image.path, test);
}
