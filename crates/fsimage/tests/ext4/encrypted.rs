//! Encrypted directories: seen, never shown as if their names were names.

use bale_fsimage::Layout;
use bale_fsimage::ext4::{Damage, Ext4};

use crate::image::{Image, can_run, skip};
use crate::scan::scan;

#[test]
fn encrypted_files_and_directories_are_left_to_the_kernel() {
    let test = "encrypted_files_and_directories_are_left_to_the_kernel";
    if !can_run(test, &["mke2fs", "mount"]) {
        return;
    }
    let image = Image::make(32, "-t ext4 -O encrypt");
    {
        // The kernel's own test key: everything new is encrypted.
        let Ok(mount) = image.try_mount("test_dummy_encryption") else {
            return skip(test, "the kernel has no test_dummy_encryption");
        };
        std::fs::create_dir(mount.path.join("secret")).unwrap();
        std::fs::write(mount.path.join("secret/file"), vec![7; 10_000]).unwrap();
        std::os::unix::fs::symlink("target", mount.path.join("secret/link")).unwrap();
    }
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert_eq!(seen.problems, Vec::<String>::new());
    let secret = seen
        .inodes
        .values()
        .filter(|seen| seen.inode.layout == Layout::Kernel("encrypted"));
    let modes: Vec<u32> = secret.map(|seen| seen.inode.mode & 0o170000).collect();
    assert!(
        modes.contains(&0o040000) && modes.contains(&0o100000) && modes.contains(&0o120000),
        "{modes:?}"
    );
    let directory = seen
        .inodes
        .values()
        .find(|seen| seen.inode.mode & 0o170000 == 0o040000 && seen.inode.number > 11);
    let directory = directory.unwrap();
    let mut names = 0;
    let read = seen.fs.read_dir(&directory.raw(), &mut |_| names += 1);
    assert_eq!(
        (read.unwrap_err().damage(), names),
        (Some(Damage::Encrypted), 0)
    );
    let dir = seen.fs.dir_context(&directory.raw());
    assert_eq!(
        seen.fs
            .parse_dir_block(&dir, 0, &[0; 4096], &mut |_| names += 1),
        Err(Damage::Encrypted)
    );
}
