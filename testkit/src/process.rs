//! Child processes that end with the test process, whatever ends that.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process, setrlimit, waitpid,
};

use crate::{wait_until, wait_within};

/// Names the test a child is to run; its presence marks a child.
const CHILD: &str = "DISTLOCK_TESTKIT_CHILD";

/// A bound for a child's whole work, generous: it only has to end a test that hangs.
const CHILD_BOUND: Duration = Duration::from_secs(180);

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// SIGKILL, which a stopped process obeys as well, and reaped.
pub(crate) fn kill(child: &mut Child) {
    // An error means that it is gone already.
    let _ = child.kill();
    let _ = child.wait();
}

/// SIGSTOP; returns when the process stands still.
pub(crate) fn stop(child: &Child) {
    kill_process(pid(child), Signal::STOP).expect("SIGSTOP a child");
    waitpid(Some(pid(child)), WaitOptions::UNTRACED).expect("wait for a child to stop");
}

/// SIGCONT.
pub(crate) fn cont(child: &Child) {
    kill_process(pid(child), Signal::CONT).expect("SIGCONT a child");
}

/// Kills a process and removes a directory when this process is gone, even by SIGKILL: a shell
/// that waits for the end of a pipe only this process holds open.
pub(crate) struct Guardian(Child);

impl Guardian {
    pub(crate) fn of(child: &Child, dir: &Path) -> Self {
        let script = r#"trap '' INT TERM HUP; read -r _; kill -KILL "$2"; rm -rf -- "$1""#;
        Self::runs(script, dir, &child.id().to_string())
    }

    /// Removes a directory, and kills nothing.
    pub(crate) fn of_directory(dir: &Path) -> Self {
        Self::runs(r#"trap '' INT TERM HUP; read -r _; rm -rf -- "$1""#, dir, "")
    }

    fn runs(script: &str, dir: &Path, child: &str) -> Self {
        Self(
            Command::new("sh")
                .args(["-c", script, "sh"])
                .arg(dir)
                .arg(child)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("start sh"),
        )
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

/// A fresh name in the directory for temporary files.
pub(crate) fn temp_path(kind: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("distlock-{kind}-{}-{count}", std::process::id()))
}

/// A test of this binary that runs again in a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct Fork {
    child: Child,
    test: String,
    output: PathBuf,
}

/// Runs the test named `test` of this test binary in a child process, with `env` added to its
/// environment, which names no manager but `env`'s: the developer's own `DISTLOCK_URL` is not seen
/// there. In it [`in_fork`] is true, so that one function can be parent and child:
///
/// ```no_run
/// use distlock_testkit::{fork_self, in_fork};
///
/// #[test]
/// fn many_processes() {
///     if in_fork() {
///         return; // the child's work
///     }
///     let forks: Vec<_> = (0..8).map(|_| fork_self("many_processes", &[])).collect();
///     for fork in forks {
///         fork.join();
///     }
/// }
/// ```
pub fn fork_self(test: &str, env: &[(&str, &str)]) -> Fork {
    let output = temp_path("fork");
    let log = File::create(&output).expect("create a file for the child's output");
    let mut command = Command::new(std::env::current_exe().expect("path of this test binary"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DISTLOCK_") {
            command.env_remove(name);
        }
    }
    let child = command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(log.try_clone().expect("clone a file handle"))
        .stderr(log)
        .spawn()
        .expect("start this test binary again");
    Fork { child, test: test.to_owned(), output }
}

/// The name of the test this stands in, as [`fork_self`] takes it: `module::test`.
#[macro_export]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::test_name(std::any::type_name_of_val(&here))
    }};
}

/// The name of the test that has an item of this path: without the crate before it, and without what
/// is inside the test. For [`this_test!`].
#[doc(hidden)]
pub fn test_name(path: &'static str) -> &'static str {
    let path = path.strip_suffix("::here").unwrap_or(path);
    let path = path.split("::{{").next().unwrap_or(path);
    path.split_once("::").map_or(path, |(_crate, path)| path)
}

/// Whether the test goes on in this process: for what is the whole process's, such as its log, its
/// environment, or the process-wide manager. The test harness's process starts another, in which this
/// is true, with `env` added to its environment, and waits for it.
///
/// ```no_run
/// use distlock_testkit::{in_own_process, this_test};
///
/// #[test]
/// fn the_process_wide_manager() {
///     if !in_own_process(this_test!(), &[]) {
///         return;
///     }
///     // … the test …
/// }
/// ```
pub fn in_own_process(test: &str, env: &[(&str, &str)]) -> bool {
    if !in_fork() {
        fork_self(test, env).join();
    }
    in_fork()
}

/// Whether this process was started by [`fork_self`].
pub fn in_fork() -> bool {
    static WATCH: Once = Once::new();
    let child = std::env::var_os(CHILD).is_some();
    if child {
        // The parent holds the other end of standard input: its end is the parent's end.
        WATCH.call_once(|| {
            thread::spawn(|| {
                let _ = io::stdin().read_to_end(&mut Vec::new());
                std::process::exit(1);
            });
        });
    }
    child
}

impl Fork {
    /// Waits for the child and panics with its output unless its test passed.
    pub fn join(mut self) {
        let mut status = None;
        wait_within(CHILD_BOUND, "a child process ends", || {
            status = self.child.try_wait().expect("wait for a child");
            status.is_some()
        });
        let output = fs::read_to_string(&self.output).unwrap_or_default();
        // A misspelt name runs no test at all, and succeeds.
        let passed = status.is_some_and(|s| s.success()) && output.contains("1 passed");
        assert!(passed, "the child running {} failed:\n{output}", self.test);
    }

    /// SIGKILL, as when the machine dies.
    pub fn kill9(mut self) {
        kill(&mut self.child);
    }

    /// SIGTERM: the child may end in its own way, or not at all.
    pub fn terminate(&self) {
        kill_process(pid(&self.child), Signal::TERM).expect("SIGTERM a child");
    }

    /// SIGSTOP, as when the machine is paused.
    pub fn stop(&self) {
        stop(&self.child);
    }

    /// SIGCONT after [`stop`](Self::stop).
    pub fn cont(&self) {
        cont(&self.child);
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        kill(&mut self.child);
        let _ = fs::remove_file(&self.output);
    }
}

/// Runs `f` while this process can start no thread: there is no room for another stack.
pub fn without_threads<R>(f: impl FnOnce() -> R) -> R {
    const PIECE: usize = 256 << 10;
    // The C library keeps the stacks of threads that ended: they are in use meanwhile.
    let (end, ended) = channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let idle = [(); 8].map(|()| {
        let ended = ended.clone();
        thread::spawn(move || ended.lock().expect("never poisoned").recv())
    });
    // A thread that starts or works would find no memory.
    wait_until("all other threads wait", others_wait);
    let mut used: Vec<Vec<u8>> = Vec::with_capacity(1 << 12);
    let maximum = getrlimit(Resource::As).maximum;
    let limit = |current| {
        setrlimit(Resource::As, Rlimit { current, maximum }).expect("a limit");
    };
    limit(Some(address_space() + (3 << 19)));
    // The size was read while other threads may have mapped and unmapped memory. So what is left is
    // used up, but for what `f` allocates: less than a stack. With memory and not with threads: one
    // that has its stack and no room for anything else ends the process.
    while let Some(piece) = {
        let mut piece = Vec::new();
        piece.try_reserve_exact(PIECE).is_ok().then_some(piece)
    } {
        used.push(piece);
    }
    used.truncate(used.len().saturating_sub(4));
    let done = f();
    limit(maximum);
    drop(used);
    drop(end);
    for thread in idle {
        let _ = thread.join().expect("it only waits");
    }
    done
}

fn others_wait() -> bool {
    let threads = fs::read_dir("/proc/self/task").expect("the threads of this process");
    let at_work = |stat: &str| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
    let stats =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.filter(|stat| at_work(stat)).count() == 1
}

fn address_space() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("the size of this process");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    pages * u64::try_from(rustix::param::page_size()).expect("small")
}

/// A program that serves HTTP, in a process of its own. Killed when dropped, and when this process
/// ends, however it ends.
pub struct Service {
    child: Child,
    addr: SocketAddr,
    _guardian: Guardian,
    dir: PathBuf,
}

impl Service {
    /// Starts the program; returns when it has printed where it listens, as `http://ip:port`. The
    /// developer's own `DISTLOCK_URL` is not seen there.
    pub fn start(program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let dir = temp_path("service");
        fs::create_dir(&dir).expect("create a directory for the service");
        let output = dir.join("output");
        let log = File::create(&output).expect("create a file for the service's output");
        let mut child = Command::new(program)
            .args(args)
            .env_remove("DISTLOCK_URL")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("clone a file handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let guardian = Guardian::of(&child, &dir);
        let mut addr = None;
        wait_within(CHILD_BOUND, "the service says where it listens", || {
            let said = fs::read_to_string(&output).unwrap_or_default();
            let ended = child.try_wait().expect("look at a child").is_some();
            assert!(!ended, "{program} has ended:\n{said}");
            let line = said.split_once("http://").and_then(|(_, rest)| rest.split_once('\n'));
            addr = line.and_then(|(addr, _)| addr.trim().parse().ok());
            addr.is_some()
        });
        Self { child, addr: addr.expect("waited for"), _guardian: guardian, dir }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// SIGTERM, as from whatever runs containers.
    pub fn terminate(&self) {
        kill_process(pid(&self.child), Signal::TERM).expect("SIGTERM a child");
    }

    /// Waits for its end; whether it succeeded, and what it had printed.
    pub fn ended(&mut self) -> (bool, String) {
        let mut status = None;
        wait_within(CHILD_BOUND, "the service ends", || {
            status = self.child.try_wait().expect("look at a child");
            status.is_some()
        });
        (status.is_some_and(|status| status.success()), self.output())
    }

    /// What it has printed.
    pub fn output(&self) -> String {
        fs::read_to_string(self.dir.join("output")).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        kill(&mut self.child);
        let _ = fs::remove_dir_all(&self.dir);
    }
}
