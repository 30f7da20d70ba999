//! Which files an image is made of, described for QEMU so that it opens these and no others.

use super::image_header::{HEAD_BYTES_MAX, ImageHeaderError, check_vdi, check_vhdx, read_qcow2};
use super::vmdk_descriptor::read_vmdk;
use super::{ImageFormat, QemuImageError};
use rustix::fs::OFlags;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Images of a chain at most.
const LAYERS_MAX: usize = 64;

/// An image and whatever it is made of.
pub(super) struct ImageChain {
    /// For QEMU.
    pub description: Value,
    /// The image first.
    pub files: Vec<PathBuf>,
}

/// Describes an image and whatever it is based on.
pub(super) fn describe(
    path: &Path,
    format: ImageFormat,
    allows_elsewhere: bool,
) -> Result<ImageChain, QemuImageError> {
    let mut chain = Chain {
        allows_elsewhere,
        files: Vec::new(),
    };
    let description = chain.image(path, format, LAYERS_MAX)?;
    let files = chain.files;
    Ok(ImageChain { description, files })
}

struct Chain {
    allows_elsewhere: bool,
    /// Found so far: in each layer as many as a header of a bounded length can name.
    files: Vec<PathBuf>,
}

impl Chain {
    fn image(
        &mut self,
        path: &Path,
        format: ImageFormat,
        layers_left: usize,
    ) -> Result<Value, QemuImageError> {
        let layers_left = layers_left
            .checked_sub(1)
            .ok_or_else(|| QemuImageError::Endless(path.to_owned()))?;
        let path = canonical(path)?;
        let head = head_of(&path)?;
        let header = |source| QemuImageError::Header {
            path: path.clone(),
            source,
        };
        let mut image = json!({ "driver": format.name(), "file": self.file(&path)? });
        match format {
            ImageFormat::Qcow2 => {
                let found = read_qcow2(&head).map_err(header)?;
                image["backing"] = match &found.backing {
                    None => Value::Null,
                    Some(backing) => {
                        let named = self.resolve(&path, &backing.name)?;
                        self.backing(&named, backing.format.as_deref(), layers_left)
                            .map_err(|error| error.unwrap_or_else(header))?
                    }
                };
                if let Some(name) = &found.data_file {
                    let named = self.resolve(&path, name)?;
                    image["data-file"] = self.file(&named)?;
                }
            }
            ImageFormat::Vmdk => {
                let found = read_vmdk(&head).map_err(header)?;
                for name in &found.extents {
                    // QEMU reads these names itself, and takes what is before a colon for a way.
                    if name.contains(':') {
                        let named = crate::shown::shown(name.as_bytes());
                        return Err(QemuImageError::NoFile { path, named });
                    }
                    let named = self.resolve(&path, name)?;
                    self.files.push(named);
                }
                image["backing"] = match &found.parent {
                    None => Value::Null,
                    Some(name) => {
                        let named = self.resolve(&path, name)?;
                        self.image(&named, ImageFormat::Vmdk, layers_left)?
                    }
                };
            }
            ImageFormat::Vdi => check_vdi(&head).map_err(header)?,
            ImageFormat::Vhdx => check_vhdx(&head).map_err(header)?,
        }
        Ok(image)
    }

    /// What an image is based on. A format that nobody names is not guessed: what is in a raw image
    /// is a guest's to write, and may look like any format.
    fn backing(
        &mut self,
        path: &Path,
        format: Option<&str>,
        layers_left: usize,
    ) -> Result<Value, Result<QemuImageError, ImageHeaderError>> {
        let format = match format {
            None => return Err(Err(ImageHeaderError::BackingFormat)),
            Some("raw") => {
                let path = canonical(path).map_err(Ok)?;
                return Ok(json!({ "driver": "raw", "file": self.file(&path).map_err(Ok)? }));
            }
            Some("qcow2") => ImageFormat::Qcow2,
            Some("vmdk") => ImageFormat::Vmdk,
            Some("vdi") => ImageFormat::Vdi,
            Some("vhdx") => ImageFormat::Vhdx,
            Some(other) => {
                let other = crate::shown::shown(other.as_bytes());
                return Err(Err(ImageHeaderError::OtherBackingFormat(other)));
            }
        };
        self.image(path, format, layers_left).map_err(Ok)
    }

    /// The file that an image names, which lies in its directory: names are followed to the end, as
    /// one may be a link.
    fn resolve(&self, image: &Path, name: &str) -> Result<PathBuf, QemuImageError> {
        let directory = image.parent().unwrap_or(Path::new("/"));
        let named = directory.join(name.strip_prefix("file:").unwrap_or(name));
        if self.allows_elsewhere {
            return Ok(named);
        }
        let found = named.canonicalize();
        let is_inside = found
            .as_ref()
            .is_ok_and(|found| found.starts_with(directory));
        match (found, is_inside) {
            (Ok(found), true) => Ok(found),
            (Err(source), _) if named.starts_with(directory) && is_plain(name) => {
                Err(QemuImageError::Read {
                    path: named,
                    source,
                })
            }
            _ => Err(self.elsewhere(image, name)),
        }
    }

    fn file(&mut self, path: &Path) -> Result<Value, QemuImageError> {
        let name = path.to_str();
        let name = name.ok_or_else(|| QemuImageError::Name(path.to_owned()))?;
        self.files.push(path.to_owned());
        Ok(json!({ "driver": "file", "filename": name }))
    }

    fn elsewhere(&self, image: &Path, name: &str) -> QemuImageError {
        QemuImageError::Elsewhere {
            path: image.to_owned(),
            named: crate::shown::shown(name.as_bytes()),
        }
    }
}

/// Without a way up or out; of other names it is not said whether they exist.
fn is_plain(name: &str) -> bool {
    !name.contains('/') && name != ".."
}

fn canonical(path: &Path) -> Result<PathBuf, QemuImageError> {
    path.canonicalize().map_err(|source| QemuImageError::Read {
        path: path.to_owned(),
        source,
    })
}

fn head_of(path: &Path) -> Result<Vec<u8>, QemuImageError> {
    let read = || -> io::Result<Vec<u8>> {
        // Nobody may ever write to what is a pipe.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut head = Vec::new();
        file.take(HEAD_BYTES_MAX as u64).read_to_end(&mut head)?;
        Ok(head)
    };
    read().map_err(|source| QemuImageError::Read {
        path: path.to_owned(),
        source,
    })
}
