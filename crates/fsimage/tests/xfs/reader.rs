//! The reader sees in an image exactly what the kernel shows of it, whatever mkfs.xfs was asked
//! for.

use crate::xfs_image::fixture::{Abilities, populate};
use crate::xfs_image::seen::{assert_same, by_kernel, by_reader};
use crate::xfs_image::{Image, can_run_since, run};
use bale_fsimage::xfs::{LogState, Xfs};

const TOOLS: [&str; 7] = [
    "mkfs.xfs", "mount", "fsfreeze", "setfacl", "cp", "xfs_io", "xfs_db",
];
const ORDINARY: Abilities = Abilities {
    reflink: true,
    bigtime: true,
    names: 3000,
    since_kernel: (5, 10),
};

/// Fills a file system, compares it while mounted behind a barrier, and again after unmounting.
fn kernel_and_reader_agree(mkfs_arguments: &str, can: Abilities) {
    if !can_run_since(can.since_kernel, &TOOLS) {
        return;
    }
    let image = Image::make(2048, mkfs_arguments);
    let mounted = image.mount();
    populate(&mounted.path(), can);
    run("sync", &["-f", mounted.path().to_str().unwrap()]);
    let source = image.open();
    assert_eq!(
        Xfs::open(&source).unwrap().log_state(&source).unwrap(),
        LogState::Dirty,
        "mounted, {mkfs_arguments}"
    );
    mounted.barrier();
    assert_eq!(
        Xfs::open(&source).unwrap().log_state(&source).unwrap(),
        LogState::Covered,
        "frozen, {mkfs_arguments}"
    );
    let kernel = by_kernel(&mounted.path());
    let source = image.open();
    assert_same(
        &kernel,
        &by_reader(&source),
        &format!("mounted, {mkfs_arguments}"),
    );
    mounted.unmount();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    assert_eq!(
        xfs.log_state(&source).unwrap(),
        LogState::Clean,
        "{mkfs_arguments}"
    );
    assert!(!xfs.no_checksums());
    assert_same(
        &kernel,
        &by_reader(&source),
        &format!("unmounted, {mkfs_arguments}"),
    );
    let superblock = xfs.superblock();
    assert_eq!(
        xfs.inode_totals(&source).unwrap(),
        (superblock.inode_count, superblock.inode_free_count)
    );
}

/// One test for each way to make a file system.
macro_rules! agree {
    ($($name:ident: $arguments:literal $(, $field:ident = $value:expr)*;)*) => {$(
        #[test]
        fn $name() {
            kernel_and_reader_agree($arguments, Abilities { $($field: $value,)* ..ORDINARY });
        }
    )*};
}

agree! {
    defaults: "";
    inodes_of_1024_bytes: "-i size=1024";
    inodes_of_2048_bytes_and_directory_blocks_of_8_kib: "-i size=2048 -n size=8k";
    directory_blocks_of_64_kib: "-n size=64k";
    blocks_of_1_kib: "-b size=1k";
    scattered_directory_blocks: "-b size=1k -n size=16k";
    blocks_of_2_kib_in_small_groups: "-b size=2k -d agcount=16";
    blocks_of_16_kib: "-b size=16k", since_kernel = (6, 12);
    blocks_of_64_kib: "-b size=64k", since_kernel = (6, 12);
    no_reflink: "-m reflink=0,rmapbt=0", reflink = false;
    reverse_mappings: "-m rmapbt=1";
    old_times_and_no_counts: "-m bigtime=0,inobtcount=0", bigtime = false;
    no_free_inode_btree: "-m finobt=0,inobtcount=0";
    large_extent_counts: "-i nrext64=1", since_kernel = (5, 19);
    no_sparse_inodes: "-i sparse=0";
    sectors_of_4_kib: "-s size=4096";
    striped: "-d su=64k,sw=4 -l su=256k,size=80m";
}
