//! What views are called, and which rows of a catalog are theirs.
//!
//! A view is a directory beside its image, of the name of the part that its file system is in
//! (`p1`, `disk`, a volume). Where a backup names several images, the image's name is in front.

use super::super::parent::Parent;
use bale_format::{Entry, Kind};
use bale_repository::catalog::KeyRange;
use bytes::Bytes;
use std::collections::HashSet;

/// A name of a file has no more.
const NAME_BYTES_MAX: usize = 255;

/// Names of the views of a snapshot.
#[derive(Debug, Default)]
pub(super) struct ViewNames(HashSet<Bytes>);

impl ViewNames {
    pub(super) fn of_parent(parent: &Parent) -> ViewNames {
        let views = parent.images.iter().flat_map(|image| &image.views);
        let name = |path: &[u8]| Bytes::copy_from_slice(path.strip_prefix(b"/").unwrap_or(path));
        ViewNames(views.map(|view| name(&view.path.0)).collect())
    }

    /// Is this row the directory of a view, or below it? An image never is.
    pub(super) fn have(&self, row: &Entry) -> bool {
        if self.0.is_empty() || row.is_image() || row.kind == Kind::Extent {
            return false;
        }
        let path = match row.parent.is_empty() {
            true => &row.name[..],
            false => &row.parent[..],
        };
        let end = path.iter().position(|byte| *byte == b'/');
        self.0.contains(&path[..end.unwrap_or(path.len())])
    }

    /// What is below the directories of these views, but for those of a name that an image has.
    pub(super) fn below<'a>(
        &'a self,
        mut is_image: impl FnMut(&Bytes) -> bool + 'a,
    ) -> impl Iterator<Item = KeyRange> + 'a {
        let names = self.0.iter().filter(move |name| !is_image(name));
        names.map(|name| KeyRange::below(name))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }
}

/// The name of the view of a file system. `None`: there is none that a file can have.
pub(super) fn view_name(
    image: &Bytes,
    file_system: &str,
    is_one_of_several: bool,
    images: &[Bytes],
) -> Option<Bytes> {
    let mut name = match is_one_of_several {
        true => [&image[..], b".", file_system.as_bytes()].concat(),
        false => file_system.as_bytes().to_vec(),
    };
    while images.iter().any(|image| image[..] == name[..]) {
        name.extend_from_slice(b".files");
    }
    (name.len() <= NAME_BYTES_MAX).then(|| Bytes::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_the_name_of_its_part_unless_an_image_has_it() {
        let images = ["disk".into(), "vm.raw".into(), "vm.raw.p1".into()];
        let name = |image: &'static str, part, is_one_of_several| {
            let image = Bytes::from(image);
            view_name(&image, part, is_one_of_several, &images)
        };
        assert_eq!(name("vm.raw", "p2", false).unwrap(), "p2");
        assert_eq!(name("disk", "disk", false).unwrap(), "disk.files");
        assert_eq!(name("vm.raw", "p2", true).unwrap(), "vm.raw.p2");
        assert_eq!(name("vm.raw", "p1", true).unwrap(), "vm.raw.p1.files");
        let long = "n".repeat(250);
        assert_eq!(name("vm.raw", &long, true), None);
    }

    #[test]
    fn rows_of_a_view_are_its_directory_and_what_is_below_and_never_an_image() {
        let names = ViewNames(HashSet::from([Bytes::from("p1")]));
        let row = |parent: &'static str, name: &'static str, kind| {
            Entry::new(parent.into(), name.into(), kind)
        };
        assert!(names.have(&row("", "p1", Kind::Directory)));
        assert!(names.have(&row("p1", "a", Kind::File)));
        assert!(names.have(&row("p1/b/c", "d", Kind::Symlink)));
        assert!(!names.have(&row("p1", "0000000000000000", Kind::Extent)));
        assert!(!names.have(&row("", "p10", Kind::Directory)));
        assert!(!names.have(&row("p10", "a", Kind::File)));
        let mut image = row("", "p1", Kind::File);
        image.content = bale_format::Content::Image;
        assert!(!names.have(&image));
    }
}
