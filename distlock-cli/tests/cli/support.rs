//! The program under test and what is around it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_testkit::{RedisServer, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

/// One server for all tests that do nothing to it: each has keys of its own.
pub(crate) static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// The program, with no store named and nothing on its standard input.
pub(crate) fn distlock(args: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_distlock");
    // Whatever started the tests may have had these ignored, which is inherited.
    let ignored = ["HUP", "INT", "QUIT"].map(is_ignored).contains(&true);
    let mut command = if ignored {
        let mut env = Command::new("env");
        env.args(["--default-signal=HUP,INT,QUIT", program]);
        env
    } else {
        Command::new(program)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DISTLOCK_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same for the common server.
pub(crate) fn distlock_here(args: &[&str]) -> Command {
    distlock_at(&SERVER, args)
}

pub(crate) fn distlock_at(server: &RedisServer, args: &[&str]) -> Command {
    let mut command = distlock(args);
    command.env("DISTLOCK_URL", server.url());
    command
}

pub(crate) fn is_ignored(signal: &str) -> bool {
    let number = match signal {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        _ => Signal::QUIT,
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (number.as_raw() - 1)) != 0
}

/// Runs it to its end.
pub(crate) fn ran(mut command: Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().expect("start distlock");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: status.code(), stdout: text(&stdout), stderr: text(&stderr) }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in {self:?}");
        }
        self
    }
}

/// The program while it runs. Killed when dropped.
pub(crate) struct Tool(Child);

impl Tool {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("start distlock"))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal distlock");
    }

    /// To the process group that it leads.
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).expect("signal a group");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("look at distlock").is_some()
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        wait_until("distlock ends", || self.has_ended());
        let text = |from: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            if let Some(from) = from {
                let _ = from.read_to_string(&mut text);
            }
            text
        };
        let status = self.0.wait().expect("wait for distlock");
        let stdout = text(self.0.stdout.as_mut().map(|from| from as _));
        let stderr = text(self.0.stderr.as_mut().map(|from| from as _));
        Ran { code: status.code(), stdout, stderr }
    }

    /// Its standard input, to be closed.
    pub(crate) fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.0.stdin.take()
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(text.as_bytes()).expect("write to distlock");
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often a test is to do its work, where that is asked for.
pub(crate) fn rounds() -> Option<u64> {
    std::env::var("DISTLOCK_CLI_ROUNDS").ok()?.parse().ok()
}

/// A key that no other test uses.
pub(crate) fn key() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("key:{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A directory of the test's own; removed when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "distlock-cli-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("create a directory");
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text.
    pub(crate) fn text_of(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What a process has written there.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a process has written a whole line there; the first one.
    pub(crate) fn line(&self, name: &str) -> String {
        wait_until(&format!("somebody writes to {name}"), || self.read(name).contains('\n'));
        self.read(name).lines().next().unwrap_or_default().to_owned()
    }

    /// The same for a process's number.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        let line = self.line(name);
        Pid::from_raw(line.trim().parse().expect("a number")).expect("positive")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = Path::new("/proc").join(pid.as_raw_pid().to_string()).join("stat");
    match fs::read_to_string(stat) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => test_kill_process(pid).is_ok(),
    }
}

/// Asks the server past everything. Again if the wait was interrupted, as happens where many processes
/// come and go.
#[track_caller]
pub(crate) fn ask<T: redis::FromRedisValue>(server: &RedisServer, args: &[&str]) -> T {
    let client = redis::Client::open(server.unix_url()).expect("a URL");
    let mut answer = Err(redis::RedisError::from((redis::ErrorKind::Io, "not asked yet")));
    for _ in 0..5 {
        let connection = client.get_connection();
        answer = connection.and_then(|mut on| redis::cmd(args[0]).arg(&args[1..]).query(&mut on));
        if !answer.as_ref().is_err_and(redis::RedisError::is_io_error) {
            break;
        }
    }
    answer.unwrap_or_else(|error| panic!("{}: {error}", args.join(" ")))
}

/// The name of the lock of a key in the store.
pub(crate) fn lock_of(key: &str) -> String {
    // A key with a hash tag of its own stands without braces of ours.
    match key.starts_with('{') {
        true => format!("distlock:lock::{key}"),
        false => format!("distlock:lock:{{{key}}}"),
    }
}

pub(crate) fn is_held(server: &RedisServer, key: &str) -> bool {
    ask::<u64>(server, &["EXISTS", &lock_of(key)]) == 1
}

/// Waits until the lock of a key is held.
pub(crate) fn wait_until_held(server: &RedisServer, key: &str) {
    wait_until("the lock is held", || is_held(server, key));
}

/// A holder of a lock: runs until it is dropped.
pub(crate) fn holder(server: &RedisServer, key: &str) -> Tool {
    let tool = Tool::start(distlock_at(server, &["run", key, "--", "sleep", "600"]));
    wait_until_held(server, key);
    tool
}
