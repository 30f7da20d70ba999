//! A process that leads to a server: `ssh` or `rclone`, or what the user has put in its place.
//!
//! Its last words are kept, a bounded number, for the message that says why it ended. It is reaped
//! whatever happens, and killed if it does not end by itself.

use crate::shown::shown;
use bale_pipeline::secret_variables::withhold_secrets;
use crossbeam_channel::{Receiver, bounded};
use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Last bytes of its stderr that are kept, and lines of them that are shown.
const WORDS_BYTES_MAX: usize = 4 << 10;
const WORDS_LINES_MAX: usize = 5;

/// In each pipe, where the system allows it: a packet of SFTP goes in at once, and both sides wake
/// up once for it, not four times as with the usual 64 KiB.
const PIPE_BYTES: usize = 1 << 20;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// For its last words, once it has ended: a grandchild may hold its stderr open.
const WORDS_WAIT: Duration = Duration::from_secs(1);

/// A child process.
pub(crate) struct ServerProcess {
    program: String,
    child: Mutex<Running>,
    words: Arc<Mutex<Vec<u8>>>,
    /// Ends with its stderr.
    all_said: Receiver<()>,
}

enum Running {
    Child(Child),
    /// How it ended, in words.
    Ended(String),
}

/// A process that runs, and the pipes to and from it.
pub(crate) struct Started {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub process: ServerProcess,
}

/// Of a program that will not be there in a minute either.
fn advice(variable: &str) -> String {
    format!("install it, or name another program in {variable}")
}

/// Starts a command whose stdin and stdout are the server's. `name` is that of the thread that
/// listens to its stderr, `variable` of the environment's that replaces the command.
pub(crate) fn start(
    command: &[String],
    variables: &[(&str, &str)],
    name: &str,
    variable: &str,
) -> io::Result<Started> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"))?;
    let failed = |error: io::Error| {
        // `NotFound` would say that there is no such object.
        let (kind, advice) = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => (
                io::ErrorKind::InvalidInput,
                format!(": {}", advice(variable)),
            ),
            // There may be too many processes just now.
            _ => (io::ErrorKind::NotConnected, String::new()),
        };
        io::Error::new(kind, format!("cannot start {program}: {error}{advice}"))
    };
    let mut started = Command::new(program);
    let child = withhold_secrets(&mut started)
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(failed)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let words = Arc::new(Mutex::new(Vec::new()));
    let (said, all_said) = bounded(1);
    let process = ServerProcess {
        program: program.clone(),
        child: Mutex::new(Running::Child(child)),
        words: words.clone(),
        all_said,
    };
    let (Some(stdin), Some(stdout), Some(mut stderr)) = pipes else {
        process.finish(Duration::ZERO);
        return Err(failed(io::Error::other("it has no pipes")));
    };
    // Smaller ones are slower, and no trouble.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_BYTES);
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
    let listening = std::thread::Builder::new().name(name.to_owned());
    let listening = listening.spawn(move || {
        listen(&mut stderr, &words);
        drop(said);
    });
    if let Err(error) = listening {
        process.finish(Duration::ZERO);
        return Err(failed(error));
    }
    Ok(Started {
        stdin,
        stdout,
        process,
    })
}

impl ServerProcess {
    /// Waits for its end so long, kills it then, and reaps it; says how it ended. Once it has
    /// ended, says so again.
    pub(crate) fn finish(&self, wait: Duration) -> String {
        let mut running = lock(&self.child);
        let ended = match &mut *running {
            Running::Ended(how) => return how.clone(),
            Running::Child(child) => end(child, wait),
        };
        let mut how = match ended {
            Ok(Some(status)) => format!("{} ended with {status}", self.program),
            Ok(None) => format!("{} was ended", self.program),
            Err(error) => format!("{} could not be waited for: {error}", self.program),
        };
        // A result means that it said nothing more in time: what is there is used.
        let _ = self.all_said.recv_timeout(WORDS_WAIT);
        let words = last_lines(&lock(&self.words));
        if !words.is_empty() {
            how = format!("{how}; it said: {words}");
        }
        *running = Running::Ended(how.clone());
        how
    }
}

/// `None` if it had to be killed.
fn end(child: &mut Child, wait: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= wait {
            break;
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait().map(|_| None)
}

fn listen(stderr: &mut dyn Read, words: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1 << 10];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                let mut words = lock(words);
                words.extend_from_slice(&buffer[..len]);
                let before = words.len().saturating_sub(WORDS_BYTES_MAX);
                words.drain(..before);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn last_lines(words: &[u8]) -> String {
    let lines = words.split(|byte| *byte == b'\n').map(shown);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(WORDS_LINES_MAX)..].join("; ")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_few_and_safe() {
        let many: Vec<u8> = (0..100)
            .flat_map(|line| format!("line {line}\r\n").into_bytes())
            .collect();
        assert_eq!(
            last_lines(&many),
            "line 95; line 96; line 97; line 98; line 99"
        );
        assert_eq!(last_lines(b"\n \x1b[31mred"), "[31mred");
    }

    #[test]
    fn what_is_said_without_end_is_not_kept_without_end() {
        let words = Mutex::default();
        listen(&mut io::repeat(b'x').take(1 << 20), &words);
        assert_eq!(lock(&words).len(), WORDS_BYTES_MAX);
    }
}
