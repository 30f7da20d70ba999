//! Names of owners and groups, for people: those of this machine.
//!
//! A snapshot holds numbers, and on another machine they may be of others. `/etc/passwd` and
//! `/etc/group` are read as the text that they are: a static program has no name service.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More of such a file is not read; whoever stands behind it is a number.
const NAMES_FILE_BYTES_MAX: u64 = 16 << 20;

/// Names by number; what has none is shown as its number.
#[derive(Default)]
pub struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// Nobody has a name.
    pub fn numeric() -> Owners {
        Owners::default()
    }

    /// Those of this machine; a file that cannot be read names nobody.
    pub fn of_this_machine() -> Owners {
        Owners {
            users: read(Path::new("/etc/passwd")),
            groups: read(Path::new("/etc/group")),
        }
    }

    pub fn user(&self, id: u32) -> Option<&str> {
        self.users.get(&id).map(String::as_str)
    }

    pub fn group(&self, id: u32) -> Option<&str> {
        self.groups.get(&id).map(String::as_str)
    }
}

fn read(path: &Path) -> HashMap<u32, String> {
    let mut text = Vec::new();
    let read = File::open(path).map(|file| {
        let mut file = file.take(NAMES_FILE_BYTES_MAX);
        file.read_to_end(&mut text)
    });
    match read {
        Ok(Ok(_)) => names(&text),
        _ => HashMap::new(),
    }
}

/// Of lines `name:password:number:...`, of which the first with a number names it, as `getpwuid`
/// has it.
fn names(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, number) = (fields.next(), fields.nth(1));
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        if let (Some(name @ [_, ..]), Some(number)) = (name, number) {
            // It goes to a terminal.
            names
                .entry(number)
                .or_insert_with(|| crate::output::escape(name));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_a_number_names_it_and_what_is_no_line_names_nobody() {
        let text = b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\n+nis\n:x:5:\n\
            # x:y:z\nbad:x:-1:\nlong:x:4294967296:\nad\xffd:x:7:7\n\xe2\x80\xaee:x:8:\nlast:x:9";
        let names = names(text);
        let name = |id: u32| names.get(&id).map(String::as_str);
        assert_eq!(name(0), Some("root"));
        assert_eq!(name(9), Some("last"));
        assert_eq!(name(7), Some("ad\\xffd"));
        assert_eq!(
            name(8),
            Some("\\xe2\\x80\\xaee"),
            "no name steers a terminal"
        );
        assert_eq!(names.len(), 4, "{names:?}");
    }
}
