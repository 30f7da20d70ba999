//! OpenSSH's server of SFTP on a port: one process for each connection, without ssh.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Where distributions put it.
const DIRS: [&str; 3] = ["/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh"];

/// Leads from stdin and stdout to a port, as `ssh` leads to a server.
const BRIDGE: &str = "
import os, socket, sys, threading
line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def up():
    try:
        while data := os.read(0, 65536):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)
    except OSError:
        pass
threading.Thread(target=up, daemon=True).start()
try:
    while data := line.recv(65536):
        while data:
            data = data[os.write(1, data):]
except OSError:
    pass
os._exit(0)
";

/// Its program.
pub fn sftp_server() -> PathBuf {
    let found = DIRS.map(|dir| Path::new(dir).join("sftp-server"));
    let found = found.into_iter().find(|path| path.is_file());
    found.expect("sftp-server is not installed: Debian's package openssh-sftp-server")
}

/// What is run in place of `ssh`, so that a server at a port of this machine is reached.
pub fn sftp_bridge(to: SocketAddr) -> Vec<String> {
    let words = ["python3", "-c", BRIDGE, &to.port().to_string()];
    words.map(str::to_owned).to_vec()
}

/// Listens until it is dropped. It serves the whole machine.
pub struct SftpPort {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl SftpPort {
    /// On a port of its own.
    pub fn new() -> SftpPort {
        let program = sftp_server();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("it listens");
        let is_over = Arc::<AtomicBool>::default();
        let ends = is_over.clone();
        let listening = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                serve(&program, client);
            }
        });
        SftpPort {
            address,
            is_over,
            listening: Some(listening),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Default for SftpPort {
    fn default() -> SftpPort {
        SftpPort::new()
    }
}

/// The process ends with its connection.
fn serve(program: &Path, client: TcpStream) {
    let (Ok(input), output) = (client.try_clone(), client) else {
        return;
    };
    let [input, output] = [input, output].map(|end| Stdio::from(OwnedFd::from(end)));
    let child = Command::new(program).stdin(input).stdout(output).spawn();
    let mut child = child.expect("sftp-server starts");
    std::thread::spawn(move || child.wait());
}

impl Drop for SftpPort {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes who waits for a connection.
        let _it_listens = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ended = listening.join();
        }
    }
}
