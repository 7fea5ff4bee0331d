//! The definition of the command line, its help, its completions and its manual pages.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command, value_parser};
use clap_complete::Shell;

use super::duration::{duration, ttl, wait};
use crate::exit::{self, Failure};
use crate::messages;

/// The name of the command that runs others.
pub(super) const RUN: &str = "run";

/// Defines the program `distlock`.
pub(super) fn program() -> Command {
    let url = Arg::new("url").short('u').long("url").value_name("URL").global(true).help(
        "Where the locks are, redis://[user:password@]host[:port][/db] for example \
         [default: $DISTLOCK_URL, which other users of the machine cannot read]",
    );
    let prefix = Arg::new("prefix").long("prefix").value_name("PREFIX").global(true).help(
        "Namespace of the locks in the store, as in the programs that use them \
         [default: $DISTLOCK_PREFIX, else distlock]",
    );
    Command::new("distlock")
        .max_term_width(100)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs commands under distributed locks, and shows who holds what")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args([url, prefix])
        .subcommands([run(), ls(), inspect(), release(), doctor()])
        .subcommands(cfg!(feature = "top").then(top))
        .subcommands([completions(), man()])
}

fn run() -> Command {
    let keys = Arg::new("keys")
        .value_name("KEY")
        .num_args(1..)
        .required_unless_present("key")
        .help("What to lock; of several keys all or none");
    let key = Arg::new("key")
        .short('k')
        .long("key")
        .value_name("KEY")
        .action(ArgAction::Append)
        .allow_hyphen_values(true)
        .help("The same for a key that begins with `-`: --key=-x");
    let command = Arg::new("command")
        .value_name("COMMAND")
        .num_args(1..)
        .required(true)
        .last(true)
        .value_parser(value_parser!(OsString))
        .help("What to run, and its arguments; executed as it is, without a shell");
    Command::new(RUN)
        .about("Runs a command while holding a lock; fails at once if the lock is held elsewhere")
        .long_about(ABOUT_RUN)
        .after_long_help(EXIT_CODES)
        .override_usage("distlock run [OPTIONS] <KEY>... -- <COMMAND> [ARGUMENTS]...")
        .args([keys, key, command])
        .args(run_sharing())
        .args(run_waiting())
        .args(run_holding())
        .args(run_messages())
}

fn run_sharing() -> [Arg; 2] {
    [
        flag(
            "shared",
            "Hold the lock as a reader: together with other readers, and with no writer",
        )
        .short('s')
        .conflicts_with("permits"),
        Arg::new("permits")
            .long("permits")
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..))
            .help("Hold the lock together with up to N-1 others; of one key only [default: 1]"),
    ]
}

fn run_waiting() -> [Arg; 4] {
    [
        Arg::new("wait")
            .short('w')
            .long("wait")
            .value_name("DURATION|forever")
            .value_parser(wait)
            .help("Wait so long while others hold the lock, first come, first served"),
        flag("no-wait", "Do not wait: the default").short('n').conflicts_with("wait"),
        Arg::new("busy-exit-code")
            .short('E')
            .long("busy-exit-code")
            .value_name("CODE")
            .value_parser(value_parser!(u8))
            .help(format!("The exit code if the lock is held elsewhere [default: {}]", exit::BUSY)),
        flag("skip-if-held", "Exit with 0 if the lock is held elsewhere, and say so on stderr")
            .conflicts_with("busy-exit-code"),
    ]
}

fn run_holding() -> [Arg; 6] {
    let lasts = |id: &'static str| {
        Arg::new(id).long(id).value_name("DURATION").value_parser(ValueParser::new(duration))
    };
    [
        lasts("ttl").short('t').value_parser(ttl).help(
            "How long the lock outlives this machine; it is renewed while the command runs \
             [default: 30s]",
        ),
        lasts("min-hold").help("Keep the lock at least so long, however quick the command is"),
        lasts("max-hold").help("End the command when it has had the lock for so long"),
        lasts("grace").help(
            "How long the command has between TERM and KILL when the lease is about to end, and, if this is given, when \
             distlock is sent TERM [default: 5s, or less if the ttl is short; after a TERM to distlock for ever]",
        ),
        Arg::new("on-lost")
            .long("on-lost")
            .value_name("terminate|continue")
            .value_parser(["terminate", "continue"])
            .hide_possible_values(true)
            .help("What becomes of the command when the lease is lost [default: terminate]"),
        flag(
            "foreground",
            "Stay in the terminal's process group; the default if stdin is a terminal",
        ),
    ]
}

fn run_messages() -> [Arg; 4] {
    [
        Arg::new("name")
            .long("name")
            .value_name("TEXT")
            .help("What the lock is called in metrics and by `inspect`"),
        flag("quiet", "Say only what went wrong").short('q').conflicts_with("verbose"),
        flag("verbose", "Say what happens").short('v'),
        flag("json", "Messages on stderr as JSON, one object a line"),
    ]
}

fn ls() -> Command {
    Command::new("ls")
        .about("Lists the locks that are held")
        .long_about(
            "Lists the locks that are held, with their holder, what is left of the lease and how \
             many wait.\n\nThe whole database is walked with SCAN, a little at a time: on a large \
             one that takes a while, but holds up no client.",
        )
        .args([
            Arg::new("pattern")
                .value_name("PATTERN")
                .help("Only keys like this: `*` stands for any text, `?` for one character, `\\*` for a star"),
            Arg::new("limit")
                .long("limit")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("List no more than so many [default: 1000]"),
            flag("json", "As a JSON array"),
        ])
}

fn inspect() -> Command {
    Command::new("inspect")
        .about("Shows one lock: who holds it, for how long, and who waits")
        .args([key(), flag("json", "As a JSON object")])
}

fn release() -> Command {
    Command::new("release")
        .about("Takes a lock away from its holder")
        .long_about(
            "Takes a lock away from its holder. The holder finds its lease lost, at its next \
             renewal at the latest; what it began until then is not undone.\n\nExit code: 0 if the \
             lock was held and is released, 1 if it was free.",
        )
        .args([
            key(),
            flag("force", "Take it away although it is held; without it nothing is done")
                .short('f'),
            flag("yes", "Do not ask, in a terminal either").short('y'),
        ])
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Checks whether a store is fit for locks")
        .long_about(
            "Checks whether a store is fit for locks: one line for each check, and what to do.\n\n\
             Exit code: 0 if all is well, 1 if something should be looked at, 2 if locks do not \
             work or are not safe.",
        )
        .arg(flag("json", "As a JSON array"))
}

fn top() -> Command {
    Command::new("top")
        .about("Shows the locks live")
        .long_about(
            "Shows the locks live.\n\nKeys: s sorts by another column, / filters, n shows how often the \
             locks of each name are taken and how long calls wait for them, arrows choose, Enter inspects, K releases \
             (after asking), q quits.",
        )
        .args([
            Arg::new("interval")
                .short('i')
                .long("interval")
                .value_name("DURATION")
                .value_parser(|text: &str| match duration(text) {
                    Ok(interval) if interval < Duration::from_millis(100) => {
                        Err("give at least 100ms".to_owned())
                    }
                    interval => interval,
                })
                .help("How often to look [default: 1s]"),
            flag("once", "Look once, print, and end"),
            flag("json", "With --once: as JSON").requires("once"),
        ])
}

fn completions() -> Command {
    Command::new("completions").about("Prints completions for a shell").arg(
        Arg::new("shell")
            .value_name("SHELL")
            .required(true)
            .value_parser(value_parser!(Shell))
            .help("Which shell"),
    )
}

fn man() -> Command {
    Command::new("man")
        .about("Prints the manual page")
        .arg(Arg::new("command").value_name("COMMAND").help("Of this command, `run` for example"))
}

fn key() -> Arg {
    Arg::new("key").value_name("KEY").required(true).help("The key, without the prefix")
}

fn flag(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::SetTrue).help(help)
}

const ABOUT_RUN: &str = "\
Runs a command while holding a lock. Does not wait by default: if the lock is held elsewhere it \
fails at once, with exit code 75. (flock and consul lock wait; here that is `--wait forever`.)

The command is executed as it is, without a shell, and inherits stdin, stdout, stderr and the \
working directory. It is ended before the lease is: TERM when no renewal has succeeded until \
`--grace` before the lease runs out, KILL before it does, to all of its processes. If distlock \
itself is killed, the command is ended as well. TERM, INT, HUP, QUIT, USR1, USR2, CONT and TSTP are passed on.

The command finds in its environment: DISTLOCK_KEY (the first key), DISTLOCK_KEYS (the names in the \
store, one a line), DISTLOCK_FENCING_TOKEN, and DISTLOCK_HELD=1.";

const EXIT_CODES: &str = "\
Exit codes:
  the command's own; 128+N if signal N ended it
  64   the command line cannot be used
  69   the store cannot be reached, or refuses
  75   the lock is held elsewhere (see -E and --skip-if-held)
  79   the lease was lost, or --max-hold is over, and the command was ended
  125  distlock itself failed
  126  the command cannot be executed
  127  the command was not found
A signal while distlock waits for the lock ends it with 128+N.

Examples:
  distlock run nightly-report -- /usr/local/bin/report --all
  distlock run --wait 10m deploy:web -- sh -c 'git pull && make install'
  distlock run --skip-if-held --min-hold 30s hourly -- /usr/local/bin/job";

/// Whether the command is `run`.
pub(super) fn is_run(given: &[OsString]) -> bool {
    let program = program();
    let is_command =
        |word: &&OsString| program.get_subcommands().any(|known| **word == *known.get_name());
    given.iter().skip(1).find(is_command).is_some_and(|word| word == RUN)
}

/// Prints the completions for a shell.
pub(crate) fn print_completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "distlock", &mut script);
    messages::print(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}

/// Prints the manual page of the program, or of one of its commands.
pub(crate) fn print_manual(command: Option<&str>) -> Result<u8, Failure> {
    let mut program = program();
    program.build();
    let page: Command = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            let found = found.ok_or_else(|| {
                Failure::usage(format!("no command {name:?}; `distlock help` lists them"))
            })?;
            found.display_name(format!("distlock-{name}"))
        }
    };
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page).render(&mut text);
    rendered.map_err(Failure::internal)?;
    messages::print(&String::from_utf8_lossy(&text))?;
    Ok(exit::OK)
}
