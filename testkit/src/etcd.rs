//! An etcd server of the test's own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use distlock_runtime::LockManager;

use crate::conformance::{Remote, Subject};
use crate::process::{self, Guardian};
use crate::server::free_port;
use crate::{connect, wait_until};

/// How long it may take to start, and to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// A real etcd on 127.0.0.1, a cluster of one, with ports and a directory of its own.
///
/// It is killed and its directory removed when this is dropped, and also when the test process ends without
/// dropping it.
pub struct EtcdServer {
    port: u16,
    peer_port: u16,
    dir: PathBuf,
    running: Option<Running>,
}

/// The process, killed when dropped.
struct Running {
    child: Child,
    _guardian: Guardian,
}

impl Drop for Running {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

impl EtcdServer {
    /// Starts one; returns when it answers.
    pub fn start() -> Self {
        let dir = process::temp_path("etcd");
        fs::create_dir(&dir).expect("create a directory");
        let mut server = Self { port: 0, peer_port: 0, dir, running: None };
        let start = Instant::now();
        // Another process may take a port between the look and the server's bind.
        loop {
            (server.port, server.peer_port) = (free_port(), free_port());
            match server.launch() {
                Ok(()) => return server,
                Err(log) => assert!(start.elapsed() < ANSWER, "etcd does not start:\n{log}"),
            }
            server.forget();
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// Its URL as seen through another address, for example a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("etcd://{addr}")
    }

    /// Asks its HTTP gateway, past every proxy: `kv/range` and the like, with JSON. Keys and values are in
    /// [base 64](base64).
    ///
    /// # Errors
    ///
    /// What the server says, or why it says nothing.
    pub fn ask(&self, what: &str, json: &str) -> Result<String, String> {
        let request = format!(
            "POST /v3/{what} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{json}",
            json.len()
        );
        let answer = self.exchange(&request).map_err(|error| error.to_string())?;
        if answer.starts_with("HTTP/1.0 200") { Ok(answer) } else { Err(answer) }
    }

    /// A page of its own, such as `/metrics`.
    pub fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        self.exchange(&request).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Over a connection of its own; HTTP/1.0 has no chunks.
    fn exchange(&self, request: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// All keys that are stored, and their values.
    pub fn keys(&self) -> Vec<(String, String)> {
        let all = base64(b"\0");
        let answer = self.ask("kv/range", &format!(r#"{{"key":"{all}","range_end":"{all}"}}"#));
        let answer = answer.unwrap_or_else(|error| panic!("the keys: {error}"));
        let field = |text: &str, name: &str| {
            let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let mut keys = Vec::new();
        for kv in answer.split('{').filter(|kv| kv.contains("\"create_revision\"")) {
            let text = |name| {
                let bytes = field(kv, name).map(|text| unbase64(&text)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            keys.push((text("key"), text("value")));
        }
        keys
    }

    /// Deletes a key, as an operator would.
    pub fn delete(&self, key: &str) {
        let deleted = self.ask("kv/deleterange", &format!(r#"{{"key":"{}"}}"#, base64(key)));
        deleted.unwrap_or_else(|error| panic!("delete a key: {error}"));
    }

    /// Forgets all but the present state: watches that begin earlier end.
    pub fn compact(&self) {
        let all = self.ask("kv/range", r#"{"key":"AA=="}"#).expect("the revision");
        let (_, rest) = all.split_once("\"revision\":\"").expect("a revision");
        let revision = rest.split('"').next().expect("a number");
        let compacted = self.ask("kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#));
        compacted.unwrap_or_else(|error| panic!("compact: {error}"));
    }

    /// SIGKILL.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// SIGSTOP: connections stay open, and nothing is answered.
    pub fn stop(&self) {
        process::stop(&self.running().child);
    }

    /// SIGCONT after [`stop`](Self::stop).
    pub fn cont(&self) {
        process::cont(&self.running().child);
    }

    /// Starts it again at the same port with its data, after killing it if it runs.
    pub fn restart(&mut self) {
        self.kill9();
        let start = Instant::now();
        while let Err(log) = self.launch() {
            assert!(start.elapsed() < ANSWER, "etcd does not start again:\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts it again at the same port without any data, after killing it if it runs.
    pub fn restart_empty(&mut self) {
        self.kill9();
        self.forget();
        self.restart();
    }

    fn forget(&self) {
        let _ = fs::remove_dir_all(self.dir.join("data"));
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server was killed")
    }

    /// Starts the process and waits for its answer. `Err` is the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let log = self.dir.join("log");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(self.port), url(self.peer_port));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.dir.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        let output = File::create(&log).expect("create a log");
        let errors = output.try_clone().expect("one log for both");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let missing = "etcd must be installed (scripts/test does it with apt-get)";
        let child = command.spawn().expect(missing);
        let mut running = Running { _guardian: Guardian::of(&child, &self.dir), child };
        let start = Instant::now();
        while self.ask("kv/range", r#"{"key":"AA=="}"#).is_err_and(|error| !error.contains("user"))
        {
            let ended = running.child.try_wait().expect("look at etcd").is_some();
            if ended || start.elapsed() > ANSWER {
                return Err(fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.running = Some(running);
        Ok(())
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Subject for EtcdServer {
    fn start() -> Self {
        Self::start()
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    fn left(&self) -> Vec<String> {
        let keys = self.keys().into_iter().map(|(key, _)| key);
        keys.filter(|key| !key.ends_with(":fence")).collect()
    }
}

impl Remote for EtcdServer {
    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        self.url_at(addr)
    }

    /// It has its data again.
    fn crash(&mut self) {
        self.restart();
    }

    fn crash_empty(&mut self) {
        self.restart_empty();
    }

    fn freeze(&self) {
        self.stop();
    }

    fn thaw(&self) {
        self.cont();
    }
}

/// Waits until a server has no key of a lock.
#[track_caller]
pub fn no_key_is_left(server: &EtcdServer) {
    wait_until("no key is left", || server.left().is_empty());
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As keys and values are written in JSON.
pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for three in bytes.as_ref().chunks(3) {
        let number = three.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        for n in 0..4 {
            let digit = (number >> (18 - 6 * n)) as usize % 64;
            text.push(if n > three.len() { '=' } else { char::from(DIGITS[digit]) });
        }
    }
    text
}

fn unbase64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte).unwrap_or(0) as u32;
        let number = four.iter().fold(0, |number, byte| number << 6 | digit(byte));
        let number = number << (6 * (4 - four.len()));
        bytes.extend_from_slice(&number.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_there_and_back() {
        for text in ["", "a", "ab", "abc", "distlock:lock:{k}/x.1.1000s", "\0\u{ff}"] {
            assert_eq!(unbase64(&base64(text)), text.as_bytes());
        }
        assert_eq!(
            (base64("\0"), base64("Man"), base64("Ma")),
            ("AA==".into(), "TWFu".into(), "TWE=".into())
        );
    }
}
