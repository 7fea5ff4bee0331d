//! An etcd server of the test's own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::certificates::Certificate;
use crate::conformance::Subject as _;
use crate::ensemble::Member;
use crate::own_server::{Ports, Program, Server};
use crate::wait_until;

/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// A real etcd, a cluster of one.
pub type EtcdServer = Server<Etcd>;

/// What is special about it.
#[derive(Debug, Default)]
pub struct Etcd {
    /// Its number and the ports of all, where it is not alone.
    cluster: Option<(usize, Vec<Ports>)>,
    /// More of its command line.
    arguments: Vec<String>,
    /// Clients have to speak TLS.
    tls: bool,
}

impl Program for Etcd {
    const NAME: &'static str = "etcd";

    fn command(server: &EtcdServer) -> Command {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (mut client, peer) = (url(server.ports.clients), url(server.ports.members));
        if server.program.tls {
            client = client.replace("http://", "https://");
        }
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(server.dir.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        let alone = (0, vec![server.ports]);
        let (number, ports) = server.program.cluster.as_ref().unwrap_or(&alone);
        let named = ports.iter().enumerate();
        let named = named.map(|(n, ports)| format!("member{n}={}", url(ports.members)));
        command.args(["--name", &format!("member{number}")]);
        command.args(["--initial-cluster", &named.collect::<Vec<_>>().join(",")]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        command.args(&server.program.arguments);
        command
    }

    fn answers(server: &EtcdServer) -> bool {
        if server.program.tls {
            // It listens once it serves clients.
            return TcpStream::connect(server.addr()).is_ok();
        }
        // One that asks for a user is there as well.
        server
            .ask("kv/range", r#"{"key":"AA=="}"#)
            .map_or_else(|error| error.contains("user"), |_| true)
    }

    fn url_at(addr: SocketAddr) -> String {
        format!("etcd://{addr}")
    }

    fn left(server: &EtcdServer) -> Vec<String> {
        let keys = server.keys().into_iter().map(|(key, _)| key);
        keys.filter(|key| !key.ends_with(":fence") && !key.contains("process:")).collect()
    }
}

impl Member for Etcd {
    fn of(number: usize, ports: &[Ports]) -> Self {
        Self { cluster: Some((number, ports.to_vec())), ..Self::default() }
    }

    fn leads(server: &EtcdServer) -> bool {
        let Ok(status) = server.ask("maintenance/status", "{}") else { return false };
        let field = |name: &str| {
            let (_, rest) = status.split_once(&format!("\"{name}\":\""))?;
            Some(rest.split('"').next()?.to_owned())
        };
        field("leader").is_some() && field("leader") == field("member_id")
    }
}

impl EtcdServer {
    /// Starts one with these arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&one| one.to_owned()).collect();
        Self::start_program(Etcd { arguments, ..Etcd::default() })
    }

    /// Starts one that speaks TLS with its clients, of which it cannot be [asked](Self::ask) anything here.
    pub fn start_tls(own: &Certificate) -> Self {
        let file = |path: &std::path::Path| path.display().to_string();
        let arguments = vec![
            "--cert-file".to_owned(),
            file(&own.cert),
            "--key-file".to_owned(),
            file(&own.key),
        ];
        Self::start_program(Etcd { arguments, tls: true, ..Etcd::default() })
    }

    /// Switches authentication on: the user `shop` with the password `hunter2@` may use all under `distlock:`.
    pub fn with_users(&self) {
        let (start, end) = (base64("distlock:"), base64("distlock;"));
        let grant = format!(
            r#"{{"name":"locks","perm":{{"permType":2,"key":"{start}","range_end":"{end}"}}}}"#
        );
        for (what, json) in [
            ("auth/user/add", r#"{"name":"root","password":"r"}"#),
            ("auth/role/add", r#"{"name":"root"}"#),
            ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
            ("auth/user/add", r#"{"name":"shop","password":"hunter2@"}"#),
            ("auth/role/add", r#"{"name":"locks"}"#),
            ("auth/user/grant", r#"{"user":"shop","role":"locks"}"#),
            ("auth/role/grant", &grant),
            ("auth/enable", "{}"),
        ] {
            self.ask(what, json).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
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

    /// The keys that are stored, as the user `root` of [`with_users`](Self::with_users) sees them.
    pub fn keys_as_root(&self) -> Vec<String> {
        let signed = self.ask("auth/authenticate", r#"{"name":"root","password":"r"}"#);
        let signed = signed.unwrap_or_else(|error| panic!("sign in: {error}"));
        let (_, rest) = signed.split_once("\"token\":\"").expect("a token");
        let token = rest.split('"').next().expect("its end");
        let all = base64(b"\0");
        let json = format!(r#"{{"key":"{all}","range_end":"{all}","keys_only":true}}"#);
        let request = format!(
            "POST /v3/kv/range HTTP/1.0\r\nhost: localhost\r\nauthorization: {token}\r\n\
             content-length: {}\r\n\r\n{json}",
            json.len()
        );
        let answer = self.exchange(&request).unwrap_or_else(|error| panic!("the keys: {error}"));
        let keys = answer.split("\"key\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        keys.map(|key| String::from_utf8_lossy(&unbase64(key)).into_owned()).collect()
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
