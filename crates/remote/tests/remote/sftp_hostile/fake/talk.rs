//! One connection of the fake server: requests read, carried out, answered or not.

use super::{EXTENSIONS, FakeServer, Manners, NOW, Node, State, Twist, file};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const OK: u32 = 0;
const EOF: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const FAILURE: u32 = 4;
const OP_UNSUPPORTED: u32 = 8;

/// Answers until the client ends, or the server is to.
pub fn hold(fake: FakeServer, manners: Manners, is_first: bool, stream: UnixStream) {
    let mut talk = Talk {
        fake,
        manners,
        is_first,
        stream,
        handles: BTreeMap::new(),
        next_handle: 0,
        held: Vec::new(),
        has_written: false,
    };
    // Whatever ends the talk ends the connection.
    let _ = talk.run();
    let _ = talk.stream.shutdown(Shutdown::Both);
}

enum Handle {
    File(String, Arc<Vec<u8>>),
    Dir(Vec<String>),
}

struct Talk {
    fake: FakeServer,
    manners: Manners,
    is_first: bool,
    stream: UnixStream,
    handles: BTreeMap<u32, Handle>,
    next_handle: u32,
    held: Vec<Vec<u8>>,
    has_written: bool,
}

/// Fields of a request.
struct Fields(std::io::Cursor<Vec<u8>>);

impl Fields {
    fn u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes).expect("a client's number");
        u32::from_be_bytes(bytes)
    }

    fn u64(&mut self) -> u64 {
        (u64::from(self.u32()) << 32) | u64::from(self.u32())
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.u32() as usize];
        self.0.read_exact(&mut bytes).expect("a client's string");
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).expect("a client's path")
    }

    fn handle(&mut self) -> u32 {
        let bytes = self.bytes();
        u32::from_be_bytes(bytes.try_into().expect("our handle"))
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn reply(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0][..], &fields.concat()].concat()
}

fn status(code: u32) -> Vec<u8> {
    reply(101, &[&code.to_be_bytes(), &string(b"words"), &string(b"")])
}

fn attributes(node: &Node) -> Vec<u8> {
    let (mode, len, modified) = match node {
        Node::Dir => (0o040_700u32, 0, NOW),
        Node::File { bytes, modified } => (0o100_600, bytes.len() as u64, *modified),
    };
    let time = modified.to_be_bytes();
    let flags = 0x0du32.to_be_bytes();
    [
        &flags[..],
        &len.to_be_bytes(),
        &mode.to_be_bytes(),
        &time,
        &time,
    ]
    .concat()
}

const NAMES: [(u8, &str); 15] = [
    (3, "OPEN"),
    (4, "CLOSE"),
    (5, "READ"),
    (6, "WRITE"),
    (7, "LSTAT"),
    (11, "OPENDIR"),
    (12, "READDIR"),
    (13, "REMOVE"),
    (14, "MKDIR"),
    (15, "RMDIR"),
    (16, "REALPATH"),
    (17, "STAT"),
    (18, "RENAME"),
    (8, "FSTAT"),
    (200, "EXTENDED"),
];

impl Talk {
    fn run(&mut self) -> std::io::Result<()> {
        let hello = self.receive()?;
        assert_eq!(hello, [1, 0, 0, 0, 3]);
        let mut version = vec![2, 0, 0, 0, 3];
        for (name, revision) in EXTENSIONS {
            if self.manners.announced.contains(&name) {
                version.extend([string(name.as_bytes()), string(revision.as_bytes())].concat());
            }
        }
        self.send(&version)?;
        loop {
            let request = self.receive()?;
            let twist = self.twist();
            let kind = request[0];
            let mut fields = Fields(std::io::Cursor::new(request[1..].to_vec()));
            let id = fields.u32();
            let mut answer = match twist {
                Some(Twist::Fails) => status(FAILURE),
                Some(Twist::Lies) => status(OK),
                _ => self.carry_out(kind, &mut fields),
            };
            if twist == Some(Twist::FailsAfter) {
                answer = status(FAILURE);
            }
            answer[1..5].copy_from_slice(&id.to_be_bytes());
            if self.manners.group > 1 && (kind == 5 || kind == 6) {
                self.held.push(answer);
                if self.held.len() == self.manners.group {
                    while let Some(answer) = self.held.pop() {
                        self.send(&answer)?;
                    }
                }
                continue;
            }
            self.send_twisted(answer, twist)?;
        }
    }

    fn twist(&self) -> Option<Twist> {
        if !self.is_first {
            return None;
        }
        let mut state = self.fake.lock();
        let number = state.answers;
        state.answers += 1;
        self.manners
            .twist
            .filter(|(at, _)| *at == number)
            .map(|(_, twist)| twist)
    }

    fn send_twisted(&mut self, mut answer: Vec<u8>, twist: Option<Twist>) -> std::io::Result<()> {
        match twist {
            None | Some(Twist::Fails | Twist::FailsAfter | Twist::Lies) => self.send(&answer),
            Some(Twist::WrongId) => {
                answer[1] ^= 0x40;
                self.send(&answer)
            }
            Some(Twist::Twice) => {
                self.send(&answer)?;
                self.send(&answer)
            }
            Some(Twist::Oversize) => self.stream.write_all(&[0x7f, 0xff, 0xff, 0xff, 101]),
            Some(Twist::WrongType) => {
                // A handle where something else is wanted, and the other way round.
                let other = match answer[0] {
                    102 => reply(103, &[&string(b"data")]),
                    _ => reply(102, &[&string(b"handle")]),
                };
                answer = [&other[..1], &answer[1..5], &other[5..]].concat();
                self.send(&answer)
            }
            Some(Twist::Garbage) => self.send(&[0xff; 40]),
            Some(Twist::Empty) => self.send(&[]),
            Some(Twist::Silent) => Ok(()),
        }
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let mut packet = vec![0; u32::from_be_bytes(len) as usize];
        assert!(
            packet.len() <= 256 << 10,
            "a request of {} bytes",
            packet.len()
        );
        self.stream.read_exact(&mut packet)?;
        Ok(packet)
    }

    fn send(&mut self, packet: &[u8]) -> std::io::Result<()> {
        let whole = string(packet);
        let mut len = whole.len();
        if self.is_first {
            let mut state = self.fake.lock();
            if let Some(cut) = self.manners.cut_after {
                len = len.min(cut - state.written.min(cut));
            }
            state.written += len;
        }
        self.stream.write_all(&whole[..len])?;
        match len == whole.len() {
            true => Ok(()),
            false => Err(std::io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn carry_out(&mut self, kind: u8, fields: &mut Fields) -> Vec<u8> {
        let mut name = NAMES
            .iter()
            .find(|(of, _)| *of == kind)
            .expect("a known request")
            .1;
        let extension;
        if kind == 200 {
            extension = fields.text();
            name = &extension;
        }
        if name == "WRITE" {
            self.count_writer();
        }
        let fake = self.fake.clone();
        let mut state = fake.lock();
        state.requests.push(name.to_owned());
        if self.manners.refused.contains(&name) {
            return status(OP_UNSUPPORTED);
        }
        match name {
            "OPEN" => self.open(&mut state, fields),
            "CLOSE" => {
                let known = self.handles.remove(&fields.handle());
                status(if known.is_some() { OK } else { FAILURE })
            }
            "READ" => self.read(fields),
            "WRITE" => self.write(&mut state, fields),
            "LSTAT" | "STAT" => match state.tree.get(&fields.text()) {
                Some(node) => reply(105, &[&attributes(node)]),
                None => status(NO_SUCH_FILE),
            },
            "OPENDIR" => self.opendir(&state, fields),
            "READDIR" => self.readdir(&state, fields),
            "REMOVE" => {
                let path = fields.text();
                match state.tree.get(&path) {
                    Some(Node::File { .. }) => {
                        state.tree.remove(&path);
                        status(OK)
                    }
                    Some(Node::Dir) => status(FAILURE),
                    None => status(NO_SUCH_FILE),
                }
            }
            "MKDIR" => {
                let path = fields.text();
                match state.tree.contains_key(&path) {
                    true => status(FAILURE),
                    false => insert(&mut state, &path, Node::Dir),
                }
            }
            "RMDIR" => {
                let path = fields.text();
                let start = format!("{path}/");
                match state.tree.keys().any(|key| key.starts_with(&start)) {
                    true => status(FAILURE),
                    false => status(state.tree.remove(&path).map_or(NO_SUCH_FILE, |_| OK)),
                }
            }
            "RENAME" | "hardlink@openssh.com" => {
                let (from, to) = (fields.text(), fields.text());
                let replaces = name == "RENAME" && self.manners.rename_replaces;
                let Some(node) = state.tree.get(&from).cloned() else {
                    return status(NO_SUCH_FILE);
                };
                if state.tree.contains_key(&to) && !replaces {
                    return status(FAILURE);
                }
                let inserted = insert(&mut state, &to, node);
                if inserted != status(OK) && self.manners.dirs_appear {
                    let parent = to.rsplit_once('/').expect("below the repository").0;
                    state.tree.insert(parent.to_owned(), Node::Dir);
                }
                if name == "RENAME" && inserted == status(OK) {
                    state.tree.remove(&from);
                }
                inserted
            }
            "fsync@openssh.com" => status(OK),
            "limits@openssh.com" => {
                let limits = [262_144u64, 261_120, 261_120, 100].map(u64::to_be_bytes);
                reply(201, &[&limits.concat()])
            }
            "statvfs@openssh.com" => {
                let free = self.manners.room.saturating_sub(used(&state)).min(1 << 40) as u64;
                let numbers = [1, 1, 1 << 40, free, free, 10, 5, 5, 0, 0, 255u64];
                reply(201, &[&numbers.map(u64::to_be_bytes).concat()])
            }
            other => panic!("a client asks for {other}"),
        }
    }

    fn open(&mut self, state: &mut State, fields: &mut Fields) -> Vec<u8> {
        let (path, flags) = (fields.text(), fields.u32());
        if flags & 8 != 0 {
            assert_eq!(flags, 2 | 8 | 0x20, "only new files are written");
            if let Some((path, bytes)) = self.manners.made_meanwhile.take() {
                insert(state, &path, file(&bytes, NOW));
            }
            if state.tree.contains_key(&path) {
                return status(FAILURE);
            }
            let inserted = insert(state, &path, file(b"", NOW));
            if inserted != status(OK) {
                return inserted;
            }
        }
        match state.tree.get(&path) {
            Some(Node::File { bytes, .. }) => {
                let handle = Handle::File(path.clone(), bytes.clone());
                self.add_handle(handle)
            }
            Some(Node::Dir) => status(FAILURE),
            None => status(NO_SUCH_FILE),
        }
    }

    fn add_handle(&mut self, handle: Handle) -> Vec<u8> {
        self.next_handle += 1;
        self.handles.insert(self.next_handle, handle);
        assert!(
            self.handles.len() <= 100,
            "so many handles are open at once"
        );
        reply(102, &[&string(&self.next_handle.to_be_bytes())])
    }

    fn read(&mut self, fields: &mut Fields) -> Vec<u8> {
        let (handle, offset, len) = (
            fields.handle(),
            fields.u64() as usize,
            fields.u32() as usize,
        );
        let Some(Handle::File(_, bytes)) = self.handles.get(&handle) else {
            return status(FAILURE);
        };
        let len = len.min(self.manners.read_bytes_max).min(261_120);
        match bytes.get(offset..) {
            Some(rest) if !rest.is_empty() => reply(103, &[&string(&rest[..len.min(rest.len())])]),
            _ => status(EOF),
        }
    }

    fn count_writer(&mut self) {
        let is_first = !std::mem::replace(&mut self.has_written, true);
        self.fake.lock().writers += usize::from(is_first);
    }

    fn write(&mut self, state: &mut State, fields: &mut Fields) -> Vec<u8> {
        let (handle, offset) = (fields.handle(), fields.u64() as usize);
        let written = fields.bytes();
        let Some(Handle::File(path, _)) = self.handles.get(&handle) else {
            return status(FAILURE);
        };
        if used(state) + written.len() > self.manners.room {
            return status(FAILURE);
        }
        let Some(Node::File { bytes, .. }) = state.tree.get_mut(path) else {
            return status(NO_SUCH_FILE);
        };
        let bytes = Arc::make_mut(bytes);
        let end = offset + written.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(&written);
        status(OK)
    }

    fn opendir(&mut self, state: &State, fields: &mut Fields) -> Vec<u8> {
        let path = fields.text();
        if state.tree.get(&path) != Some(&Node::Dir) {
            return status(NO_SUCH_FILE);
        }
        let start = format!("{path}/");
        let children = state.tree.range(start.clone()..).map(|(path, _)| path);
        let children = children.take_while(|path| path.starts_with(&start));
        let children = children.filter(|path| !path[start.len()..].contains('/'));
        let mut names: Vec<_> = children.cloned().collect();
        names.push(format!("{path}/.."));
        self.add_handle(Handle::Dir(names))
    }

    fn readdir(&mut self, state: &State, fields: &mut Fields) -> Vec<u8> {
        let Some(Handle::Dir(names)) = self.handles.get_mut(&fields.handle()) else {
            return status(FAILURE);
        };
        if self.manners.endless_listing {
            let name = [string(b"x"), string(b""), vec![0; 4]].concat();
            return reply(104, &[&20_000u32.to_be_bytes(), &name.repeat(20_000)]);
        }
        if names.is_empty() {
            return status(EOF);
        }
        let listed: Vec<_> = names.drain(..names.len().min(7)).collect();
        let mut fields = Vec::new();
        for path in &listed {
            let node = state.tree.get(path).unwrap_or(&Node::Dir);
            let name = path.rsplit_once('/').unwrap().1.as_bytes();
            fields.extend([string(name), string(b"long"), attributes(node)].concat());
        }
        reply(104, &[&(listed.len() as u32).to_be_bytes(), &fields])
    }
}

fn used(state: &State) -> usize {
    let len = |node: &Node| match node {
        Node::Dir => 0,
        Node::File { bytes, .. } => bytes.len(),
    };
    state.tree.values().map(len).sum()
}

fn insert(state: &mut State, path: &str, node: Node) -> Vec<u8> {
    let parent = path.rsplit_once('/').map(|(parent, _)| parent);
    if parent.is_some_and(|parent| state.tree.get(parent) != Some(&Node::Dir)) {
        return status(NO_SUCH_FILE);
    }
    state.tree.insert(path.to_owned(), node);
    status(OK)
}
