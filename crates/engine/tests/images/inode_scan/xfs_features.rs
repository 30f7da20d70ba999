//! Every feature set of XFS that mkfs.xfs makes here: an image gives the snapshot that its mount
//! gives.

use super::snapshots::{Pair, settle};
use crate::xfs_image::fixture::{Abilities, populate};
use crate::xfs_image::{Image, can_run_since};

const TOOLS: [&str; 5] = ["mkfs.xfs", "mount", "setfacl", "cp", "xfs_io"];
const ORDINARY: Abilities = Abilities {
    reflink: true,
    bigtime: true,
    names: 2000,
    since_kernel: (5, 10),
};

fn image_and_mount_agree(mkfs_arguments: &str, can: Abilities) {
    if !can_run_since(can.since_kernel, &TOOLS) {
        return;
    }
    let image = Image::make(2048, mkfs_arguments);
    let mounted = image.mount();
    populate(&mounted.path(), can);
    mounted.unmount();
    settle(&image.path());
    let walk = |pair: &Pair| {
        let mounted = image.mount();
        let taken = pair.walk(&mounted.path());
        mounted.unmount();
        taken
    };
    Pair::new().assert_same(walk, &image.path(), mkfs_arguments);
}

macro_rules! image_and_mount_agree {
    ($($name:ident: $arguments:expr $(, $field:ident = $value:expr)*;)*) => { $(
        #[test]
        fn $name() {
            image_and_mount_agree($arguments, Abilities { $($field: $value,)* ..ORDINARY });
        }
    )* };
}

image_and_mount_agree! {
    xfs_as_usual: "";
    xfs_inodes_of_1024_bytes: "-i size=1024";
    xfs_inodes_of_2048_bytes_and_directory_blocks_of_8_kib: "-i size=2048 -n size=8k";
    xfs_directory_blocks_of_64_kib: "-n size=64k";
    xfs_blocks_of_1_kib: "-b size=1k";
    xfs_scattered_directory_blocks: "-b size=1k -n size=16k";
    xfs_blocks_of_2_kib_in_small_groups: "-b size=2k -d agcount=16";
    xfs_blocks_of_16_kib: "-b size=16k", since_kernel = (6, 12);
    xfs_blocks_of_64_kib: "-b size=64k", since_kernel = (6, 12);
    xfs_no_reflink: "-m reflink=0,rmapbt=0", reflink = false;
    xfs_reverse_mappings: "-m rmapbt=1";
    xfs_old_times_and_no_counts: "-m bigtime=0,inobtcount=0", bigtime = false;
    xfs_no_free_inode_btree: "-m finobt=0,inobtcount=0";
    xfs_large_extent_counts: "-i nrext64=1", since_kernel = (5, 19);
    xfs_no_sparse_inodes: "-i sparse=0";
    xfs_sectors_of_4_kib: "-s size=4096";
    xfs_striped: "-d su=64k,sw=4 -l su=256k,size=80m";
}
