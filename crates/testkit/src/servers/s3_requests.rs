//! Requests to a server of S3, as whoever has its keys makes them without our program: signed by a
//! few lines of Python.

use super::object_stores::{ObjectServer, S3_KEY, S3_SECRET};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Signature version 4; prints status, headers, an empty line and the body.
const SIGNED_REQUEST: &str = "
import datetime, hashlib, hmac, http.client, sys
host, key, secret, method, target, *given = sys.argv[1:]
body = sys.stdin.buffer.read()
digest = hashlib.sha256(body).hexdigest()
now = datetime.datetime.now(datetime.timezone.utc).strftime('%Y%m%dT%H%M%SZ')
headers = dict(line.split(': ', 1) for line in given)
headers |= {'host': host, 'x-amz-date': now, 'x-amz-content-sha256': digest}
path, _, query = target.partition('?')
pairs = sorted(pair if '=' in pair else pair + '=' for pair in query.split('&') if pair)
names = sorted(headers)
lines = [method, path, '&'.join(pairs), *(f'{name}:{headers[name]}' for name in names)]
request = '\\n'.join([*lines, '', ';'.join(names), digest])
scope = f'{now[:8]}/us-east-1/s3/aws4_request'
text = f'AWS4-HMAC-SHA256\\n{now}\\n{scope}\\n{hashlib.sha256(request.encode()).hexdigest()}'
sign = lambda key, text: hmac.new(key, text.encode(), hashlib.sha256).digest()
signing = b'AWS4' + secret.encode()
for part in scope.split('/'): signing = sign(signing, part)
signature = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
headers['authorization'] = (f'AWS4-HMAC-SHA256 Credential={key}/{scope}, '
    f'SignedHeaders={\";\".join(names)}, Signature={signature}')
connection = http.client.HTTPConnection(host, timeout=120)
connection.request(method, target, body, headers)
answer = connection.getresponse()
print(answer.status)
for name, value in answer.getheaders(): print(f'{name.lower()}: {value}')
print(flush=True)
sys.stdout.buffer.write(answer.read())
";

/// What a server of S3 answered.
#[derive(Debug)]
pub struct S3Answer {
    pub status: u16,
    /// A line for each, with its name in small letters.
    pub headers: String,
    pub body: Vec<u8>,
}

impl S3Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.headers
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
    }

    /// Its body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What stands in every element of this name that holds no others.
    pub fn elements(&self, name: &str) -> Vec<String> {
        let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        let inside = text.split(&begin).skip(1);
        let inside = inside.filter_map(|after| after.split_once(&end));
        inside.map(|(inside, _)| inside.to_owned()).collect()
    }
}

/// One signed request by the key that servers know, to one of them or to what stands before it.
/// `target` is a path and perhaps a query, both encoded; headers are `name: value`, in small
/// letters.
pub fn s3_request(
    to: SocketAddr,
    method: &str,
    target: &str,
    headers: &[&str],
    body: &[u8],
) -> S3Answer {
    let mut child = Command::new("python3")
        .args(["-c", SIGNED_REQUEST, &to.to_string(), S3_KEY, S3_SECRET])
        .args([method, target])
        .args(headers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(body).expect("it reads all first");
    drop(input);
    let output = child.wait_with_output().expect("its output");
    let head = output.stdout.windows(2).position(|pair| pair == b"\n\n");
    let head = head.unwrap_or_else(|| panic!("no answer to {method} {target}"));
    let text = String::from_utf8_lossy(&output.stdout[..head]).into_owned();
    let (status, headers) = text.split_once('\n').unwrap_or((&text, ""));
    S3Answer {
        status: status.parse().expect("a status"),
        headers: headers.to_owned(),
        body: output.stdout[head + 2..].to_vec(),
    }
}

impl ObjectServer {
    /// A signed request to it.
    pub fn s3(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> S3Answer {
        s3_request(self.address(), method, target, headers, body)
    }

    /// The same, which must succeed.
    pub fn s3_ok(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> S3Answer {
        let answer = self.s3(method, target, headers, body);
        let text = answer.text();
        assert!(
            answer.status < 300,
            "{method} {target}: {} {text}",
            answer.status
        );
        answer
    }

    /// Makes a bucket that keeps versions and locks objects, without locking any by itself.
    pub fn make_locking_bucket(&self, bucket: &str) {
        let headers = ["x-amz-bucket-object-lock-enabled: true"];
        self.s3_ok("PUT", &format!("/{bucket}"), &headers, b"");
    }
}
