//! A server of FTP in memory, which lies as it is told.

use bale_remote::FileStore;
use bale_remote::ftp::{FtpFiles, FtpOptions, FtpPlace};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// What is not as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    #[default]
    None,
    /// Files are so much longer, and there is no more of them.
    LongerBy(u64),
    /// All but so many bytes come, and the reply is that of success.
    SendsLess(usize),
    /// So many bytes more come.
    SendsMore(usize),
    /// All but so many bytes are written, and the reply is that of success.
    KeepsLess(usize),
    /// The reply to a write comes before the first byte, of which none is written.
    DoneBefore,
    /// A rename is a success, and nothing has another name.
    RenamesNothing,
    /// Facts are those of another name.
    OtherName,
    /// Listings have these bytes in front.
    Lists(&'static [u8]),
    /// A listing is one line without an end.
    EndlessLine,
    /// Replies are lines without an end.
    EndlessReply,
    /// There is no room, and it says so in these words.
    Full(&'static str),
}

/// Listens until the process ends.
pub struct FtpFake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lie: Lie,
    files: BTreeMap<String, Vec<u8>>,
}

impl FtpFake {
    pub fn new() -> FtpFake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || {
                    let _client_has_enough = Talk::new(client, state).and_then(Talk::run);
                });
            }
        });
        FtpFake { address, state }
    }

    pub fn lie(&self, lie: Lie) {
        self.lock().lie = lie;
    }

    pub fn store(&self) -> FileStore<FtpFiles> {
        let place = FtpPlace::parse(&format!("//me:x@{}/r", self.address), false).unwrap();
        FileStore::open(FtpFiles::new(place, &FtpOptions::default()).unwrap())
    }

    /// The bytes of a file of the repository.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.lock().files.get(&format!("/r/{path}")).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// One login.
struct Talk {
    control: TcpStream,
    data: Option<TcpListener>,
    from: usize,
    renamed: String,
    state: Arc<Mutex<State>>,
}

impl Talk {
    fn new(control: TcpStream, state: Arc<Mutex<State>>) -> io::Result<Talk> {
        Ok(Talk {
            control,
            data: None,
            from: 0,
            renamed: String::new(),
            state,
        })
    }

    fn run(mut self) -> io::Result<()> {
        self.say("220 hello")?;
        let mut lines = BufReader::new(self.control.try_clone()?);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let words = line.trim_end().to_owned();
            let (command, argument) = words.split_once(' ').unwrap_or((&words, ""));
            self.obey(command, argument)?;
            line.clear();
        }
        Ok(())
    }

    fn say(&mut self, reply: &str) -> io::Result<()> {
        self.control.write_all(format!("{reply}\r\n").as_bytes())
    }

    fn lie(&self) -> Lie {
        self.state.lock().unwrap().lie
    }

    fn obey(&mut self, command: &str, argument: &str) -> io::Result<()> {
        match command {
            "USER" => self.say("331 and?"),
            "PASS" => self.say("230 in"),
            "FEAT" => self.say("211-has\r\n MLST type*;size*;\r\n211 end"),
            "PWD" => self.say("257 \"/\" is here"),
            "TYPE" | "NOOP" | "CWD" => self.say("200 ok"),
            "MKD" => self.say("257 made"),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                self.data = Some(listener);
                self.say(&format!("229 there (|||{port}|)"))
            }
            "REST" => {
                self.from = argument.parse().unwrap();
                self.say("350 from there")
            }
            "MLST" => self.facts(argument),
            "MLSD" => self.list(argument),
            "RETR" => self.send(argument),
            "STOR" => self.take(argument),
            "RNFR" => {
                self.renamed = argument.to_owned();
                self.say("350 to?")
            }
            "RNTO" => self.rename(argument),
            "DELE" => {
                self.state.lock().unwrap().files.remove(argument);
                self.say("250 gone")
            }
            _ => self.say("502 unknown"),
        }
    }

    fn facts(&mut self, path: &str) -> io::Result<()> {
        let lie = self.lie();
        if lie == Lie::EndlessReply {
            loop {
                self.say("250-and")?;
            }
        }
        let len = self.state.lock().unwrap().files.get(path).map(Vec::len);
        let Some(len) = len else {
            return self.say("550 no such file");
        };
        let (len, path) = match lie {
            Lie::LongerBy(more) => (len as u64 + more, path),
            Lie::OtherName => (len as u64, "/r/index/other"),
            _ => (len as u64, path),
        };
        self.say(&format!(
            "250-facts\r\n type=file;size={len}; {path}\r\n250 end"
        ))
    }

    fn list(&mut self, dir: &str) -> io::Result<()> {
        let lie = self.lie();
        let mut data = self.begin()?;
        if lie == Lie::EndlessLine {
            loop {
                data.write_all(&[b'x'; 4096])?;
            }
        }
        if let Lie::Lists(first) = lie {
            data.write_all(first)?;
        }
        let mut lines = String::new();
        for (path, bytes) in &self.state.lock().unwrap().files {
            let name = path
                .strip_prefix(dir)
                .and_then(|path| path.strip_prefix('/'));
            if let Some(name) = name.filter(|name| !name.contains('/')) {
                lines += &format!("type=file;size={}; {name}\r\n", bytes.len());
            }
        }
        data.write_all(lines.as_bytes())?;
        drop(data);
        self.say("226 all")
    }

    fn begin(&mut self) -> io::Result<TcpStream> {
        let listener = self.data.take().expect("EPSV comes before");
        self.say("150 here it comes")?;
        Ok(listener.accept()?.0)
    }

    fn send(&mut self, path: &str) -> io::Result<()> {
        let (lie, from) = (self.lie(), std::mem::take(&mut self.from));
        let found = self.state.lock().unwrap().files.get(path).cloned();
        let Some(mut bytes) = found else {
            return self.say("550 no such file");
        };
        match lie {
            Lie::SendsLess(less) => bytes.truncate(bytes.len() - less),
            Lie::SendsMore(more) => bytes.extend(vec![0; more]),
            _ => {}
        }
        let mut data = self.begin()?;
        let _client_has_enough = data.write_all(&bytes[from.min(bytes.len())..]);
        drop(data);
        self.say("226 all")
    }

    fn take(&mut self, path: &str) -> io::Result<()> {
        let lie = self.lie();
        let mut data = self.begin()?;
        if lie == Lie::DoneBefore {
            self.say("226 all")?;
        }
        let mut bytes = Vec::new();
        data.read_to_end(&mut bytes)?;
        match lie {
            Lie::DoneBefore => return Ok(()),
            Lie::Full(words) => return self.say(words),
            Lie::KeepsLess(less) => bytes.truncate(bytes.len().saturating_sub(less)),
            _ => {}
        }
        self.state
            .lock()
            .unwrap()
            .files
            .insert(path.to_owned(), bytes);
        self.say("226 all")
    }

    fn rename(&mut self, to: &str) -> io::Result<()> {
        if self.lie() != Lie::RenamesNothing {
            let mut state = self.state.lock().unwrap();
            let bytes = state.files.remove(&self.renamed).unwrap_or_default();
            state.files.insert(to.to_owned(), bytes);
        }
        self.say("250 renamed")
    }
}
