//! In a terminal: a pair of pseudo-terminals, and the program in its foreground.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use distlock_testkit::wait_until;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{Dir, SERVER, Tool, ask, distlock_here, is_alive, is_held, key, ran};

/// A terminal with a program that it belongs to, and what that has written there.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// Reads what is shown, until that ends or this is asked to stop.
    reader: JoinHandle<()>,
    is_open: Arc<AtomicBool>,
    tool: Tool,
}

impl Terminal {
    /// `None` where the system has no program that gives a session a terminal.
    pub(crate) fn start(command: &Command) -> Option<Self> {
        let has_setsid = Command::new("setsid").arg("--version").output().is_ok();
        if !has_setsid {
            return None;
        }
        // Not for the program: the terminal exists as long as any process has this end open.
        #[cfg(target_os = "linux")]
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        #[cfg(not(target_os = "linux"))]
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let size =
            Winsize { ws_row: ROWS as u16, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("its size");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let name = name.to_str().expect("its name").to_owned();
        let slave = || {
            let flags = i32::try_from(OFlags::NOCTTY.bits()).expect("flags");
            let mut options = OpenOptions::new();
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
            options.read(true).write(true).open(&name).expect("open the terminal")
        };
        let mut in_session = Command::new("setsid");
        in_session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => in_session.env(name, value),
                None => in_session.env_remove(name),
            };
        }
        in_session.stdin(slave()).stdout(slave()).stderr(Stdio::from(slave()));
        let tool = Tool::start(in_session);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        fcntl_setfl(&keyboard, OFlags::NONBLOCK).expect("its flags");
        let from = keyboard.try_clone().expect("a second handle");
        let is_open = Arc::new(AtomicBool::new(true));
        let (shown, still_open) = (screen.clone(), is_open.clone());
        let reader = thread::spawn(move || read(from, &shown, &still_open));
        Some(Self { keyboard, screen, reader, is_open, tool })
    }

    /// The other end is gone.
    fn hung_up(self) -> Tool {
        self.is_open.store(false, Ordering::Relaxed);
        self.reader.join().expect("no panic");
        self.tool
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
    }

    pub(crate) fn shows(&self, text: &str) {
        wait_until(text, || {
            let written = self.screen.lock().expect("no panic").clone();
            written.contains(text) || drawn(&written).iter().any(|line| line.contains(text))
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.tool.signal(signal);
    }

    /// Whether the terminal edits and echoes lines, as a shell expects.
    pub(crate) fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).expect("its settings").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Returns everything that was written to it, with all escape sequences.
    pub(crate) fn written(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.tool.has_ended()
    }

    pub(crate) fn ends_with(self, code: i32) {
        self.tool.ended().ends_with(code);
    }
}

/// Ends when the last process has closed the terminal, too.
fn read(mut from: File, shown: &Mutex<String>, is_open: &AtomicBool) {
    let mut bytes = [0; 1024];
    while is_open.load(Ordering::Relaxed) {
        match from.read(&mut bytes) {
            Ok(count @ 1..) => {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                shown.lock().expect("no panic").push_str(&text);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

const ROWS: usize = 24;
const COLUMNS: usize = 80;

/// What a terminal shows to which this was written, by a program that puts its cursor where it writes.
fn drawn(written: &str) -> Vec<String> {
    let mut screen = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut text = written.chars();
    while let Some(c) = text.next() {
        if c != '\x1b' {
            if let Some(cell) =
                screen.get_mut(row).and_then(|line: &mut Vec<char>| line.get_mut(column))
            {
                *cell = c;
            }
            column += 1;
            continue;
        }
        let sequence: String = text.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
        // Of the letters that end one only `H` is of interest here; it has two numbers, others do not.
        let numbers = sequence.trim_start_matches('[').split_once(';');
        let numbers = numbers.map(|(row, column)| (row.parse::<usize>(), column.parse::<usize>()));
        if let Some((Ok(to_row), Ok(to_column))) = numbers {
            (row, column) = (to_row.saturating_sub(1), to_column.saturating_sub(1));
        }
    }
    screen.into_iter().map(String::from_iter).collect()
}

const CTRL_C: &str = "\x03";
const CTRL_BACKSLASH: &str = "\x1c";
const CTRL_D: &str = "\x04";

#[test]
fn a_command_reads_it() {
    let script = "echo ready; read line; echo \"got <$line>\"; exit 5";
    let command = distlock_here(&["run", &key(), "--", "sh", "-c", script]);
    let Some(mut terminal) = Terminal::start(&command) else { return };
    terminal.shows("ready");
    terminal.press("hello\n");
    terminal.shows("got <hello>");
    terminal.ends_with(5);
}

#[test]
fn the_end_of_input_reaches_the_command() {
    let Some(mut terminal) = Terminal::start(&distlock_here(&["run", &key(), "--", "cat"])) else {
        return;
    };
    terminal.press("a line\n");
    terminal.press(CTRL_D);
    terminal.ends_with(0);
}

#[test]
fn ctrl_c_ends_the_command_and_what_it_has_started() {
    for (press, code) in [(CTRL_C, 130), (CTRL_BACKSLASH, 131)] {
        let (key, dir) = (key(), Dir::new());
        let script = format!("sh -c 'echo $$ > {}; exec sleep 600'; true", dir.text_of("pid"));
        let command = distlock_here(&["run", &key, "--", "sh", "-c", &script]);
        let Some(mut terminal) = Terminal::start(&command) else { return };
        let pid = dir.pid("pid");
        terminal.press(press);
        terminal.ends_with(code);
        assert!(!is_alive(pid));
        assert!(!is_held(&SERVER, &key));
    }
}

/// The terminal sends it to all processes in its foreground, this program too, which does not pass it on
/// once more.
#[test]
fn a_command_gets_ctrl_c_once() {
    let dir = Dir::new();
    let script = format!(
        "trap 'echo INT >> {}' INT; trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done",
        dir.text_of("log")
    );
    let command = distlock_here(&["run", "-v", &key(), "--", "sh", "-c", &script]);
    let Some(mut terminal) = Terminal::start(&command) else { return };
    terminal.shows("ready");
    terminal.press(CTRL_C);
    wait_until("it is told", || dir.read("log").contains("INT"));
    // Time for a second one to come.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(dir.read("log"), "INT\n");
    terminal.press(CTRL_C);
    wait_until("it is told again", || dir.read("log").lines().count() == 2);
}

#[test]
fn ctrl_c_ends_the_wait() {
    let key = key();
    let _holder = crate::support::holder(&SERVER, &key);
    let queue = format!("distlock:queue:{{{key}}}");
    let command = distlock_here(&["run", "-w", "forever", &key, "--", "true"]);
    let Some(mut terminal) = Terminal::start(&command) else { return };
    wait_until("it waits", || ask::<u64>(&SERVER, &["ZCARD", &queue]) == 1);
    terminal.press(CTRL_C);
    terminal.ends_with(130);
    assert_eq!(ask::<u64>(&SERVER, &["ZCARD", &queue]), 0);
}

/// The terminal goes away under it, as where the session of a `docker exec` or an ssh is killed.
#[test]
fn a_terminal_that_is_closed_ends_it_and_frees_the_lock() {
    let (key, dir) = (key(), Dir::new());
    let script = format!("sh -c 'echo $$ > {}; exec sleep 600'; true", dir.text_of("pid"));
    let command = distlock_here(&["run", &key, "--", "sh", "-c", &script]);
    let Some(terminal) = Terminal::start(&command) else { return };
    let pid = dir.pid("pid");
    let tool = terminal.hung_up();
    wait_until("all of it has ended", || !is_alive(pid));
    wait_until("the lock is free", || !is_held(&SERVER, &key));
    drop(tool);
}

/// A lost lease ends a command in a terminal with all it has started, although it shares the group.
#[test]
fn a_lost_lease_ends_all_of_it() {
    let (key, dir) = (key(), Dir::new());
    let script = format!(
        "sh -c 'trap \"\" TERM; echo $$ > {}; while :; do sleep 0.01; done' & wait; wait",
        dir.text_of("pid")
    );
    let options = ["run", "-t", "2s", "--grace", "200ms", &key, "--", "sh", "-c", &script];
    let Some(terminal) = Terminal::start(&distlock_here(&options)) else { return };
    let pid = dir.pid("pid");
    ran(distlock_here(&["release", "--force", &key])).ends_with(0);
    terminal.ends_with(79);
    assert!(!is_alive(pid));
}
