//! What a backup must hold: the tree, less what its options leave out.

use std::path::{Path, PathBuf};

use super::options::LEFT_OUT;
use super::source::{CACHE_TAG, bytes_of, is_skipped_name};
use super::steps::LeaveOut;
use super::tree::{Node, PathBytes, Tree, is_within, join};

/// Leaves out of a tree what the options say.
pub fn leave_out(tree: &mut Tree, sources: &[PathBuf], left_out: LeaveOut, own: &[&Path]) {
    let roots: Vec<PathBytes> = sources.iter().map(|path| bytes_of(path)).collect();
    let own: Vec<PathBytes> = own.iter().map(|path| bytes_of(path)).collect();
    let marked = marked_directories(tree, &roots, left_out);
    let gone = |path: &[u8], node: &Node| {
        if own.iter().any(|own| is_within(path, own)) {
            return true;
        }
        // The innermost source decides: those that were named are never left out.
        let Some(root) = roots
            .iter()
            .filter(|root| is_within(path, root))
            .max_by_key(|root| root.len())
        else {
            return false;
        };
        if path == root.as_slice() {
            return false;
        }
        is_left_out(path, node, root, left_out)
            || marked
                .iter()
                .any(|dir| is_left_out_by_mark(path, dir, left_out))
            || left_out.by_path
                && roots
                    .iter()
                    .any(|root| is_within(path, &join(root, LEFT_OUT.as_bytes())))
    };
    let mut kept = std::mem::take(tree);
    kept.retain(|path, node| !gone(path, node));
    *tree = kept;
}

fn is_left_out(path: &[u8], node: &Node, root: &[u8], left_out: LeaveOut) -> bool {
    let below = path[root.len()..].split(|byte| *byte == b'/');
    let mut names = below.filter(|name| !name.is_empty());
    let by_name = names.any(|name| is_skipped_name(name, left_out.ignoring_case, left_out.by_name));
    let too_large = left_out
        .larger_than
        .is_some_and(|limit| node.content.len() as u64 > limit);
    by_name || node.is_file() && too_large
}

/// Of a directory with a mark in it, marks are all that is kept.
fn is_left_out_by_mark(path: &[u8], dir: &[u8], left_out: LeaveOut) -> bool {
    if path == dir || !is_within(path, dir) {
        return false;
    }
    let is_mark = |name: &[u8]| path == join(dir, name).as_slice();
    let stays =
        left_out.marked && is_mark(b"NOBACKUP") || left_out.caches && is_mark(b"CACHEDIR.TAG");
    !stays
}

/// Is a path one of the marks that a backup looks for?
pub fn is_mark(path: &[u8], left_out: LeaveOut) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    left_out.marked && name == Some(b"NOBACKUP") || left_out.caches && name == Some(b"CACHEDIR.TAG")
}

/// Directories with a mark in them; a source is none.
fn marked_directories(tree: &Tree, roots: &[PathBytes], left_out: LeaveOut) -> Vec<PathBytes> {
    let bears = |dir: &PathBytes| {
        let by_file = left_out.marked && tree.0.contains_key(&join(dir, b"NOBACKUP"));
        let tag = tree.0.get(&join(dir, b"CACHEDIR.TAG"));
        by_file
            || left_out.caches && tag.is_some_and(|tag| tag.content.starts_with(&CACHE_TAG[..43]))
    };
    let directories = tree
        .0
        .iter()
        .filter(|(_, node)| node.is_dir())
        .map(|(path, _)| path);
    directories
        .filter(|dir| !roots.contains(dir) && bears(dir))
        .cloned()
        .collect()
}
