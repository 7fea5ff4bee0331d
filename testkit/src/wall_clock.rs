//! A wall clock that a test sets, for servers that it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::process::{Guardian, temp_path};

/// The wall clock of a server ([`RedisServerBuilder::clock`](crate::RedisServerBuilder::clock)), which runs ahead
/// of the machine's by as much as the test says. Linux with a C compiler, which Rust needs for its linker anyway.
#[derive(Debug, Clone)]
pub struct WallClock {
    ahead: Arc<Ahead>,
}

/// The file that says by how much; removed with the last clock.
#[derive(Debug)]
struct Ahead(PathBuf);

impl Drop for Ahead {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl WallClock {
    /// A clock that says what the machine's says.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let clock = Self { ahead: Arc::new(Ahead(temp_path("clock"))) };
        clock.steps_to(0);
        clock
    }

    /// Runs ahead by this many seconds from now on.
    pub fn steps_to(&self, seconds: i64) {
        // Written in place: servers have the file mapped.
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&self.ahead.0);
        let file = file.expect("open the clock's file");
        std::os::unix::fs::FileExt::write_at(&file, &seconds.to_ne_bytes(), 0).expect("set it");
    }

    /// Has a program that is started go by this clock.
    pub(crate) fn set_for(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("CLOCK_AHEAD", &self.ahead.0);
    }
}

/// The compiled `clock.c`, made once for each process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(PathBuf, Guardian)> = OnceLock::new();
    let (library, _) = LIBRARY.get_or_init(|| {
        let directory = temp_path("clock-library");
        fs::create_dir(&directory).expect("create a directory for the clock");
        let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
        fs::write(&source, include_str!("clock.c")).expect("write the clock's source");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let compiled = compiler.output().expect("`cc` is there");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        (library, Guardian::of_directory(&directory))
    });
    library
}
