//! A password in a URL of the command line: it does not stay where all users of the machine can read it.
//!
//! The system shows the arguments of a process to every user, and its environment to its own user alone. So
//! this program starts itself anew in its place, as the same process, with the URL in the environment and
//! without the password among its arguments. It is seen there for a moment; a URL in `DISTLOCK_URL`
//! avoids that, too.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::place::place;

/// The whole URL, of which the command line has only the place. Not for the command of a run.
pub(crate) const URL: &str = "DISTLOCK_GIVEN_URL";

/// Returns if there is nothing to hide, or no way to.
pub(crate) fn hide(url: &str) {
    let place = place(url);
    let Ok(program) = std::env::current_exe() else { return };
    if place == url {
        return;
    }
    let mut given = std::env::args_os();
    let mut command = Command::new(program);
    command.arg0(given.next().unwrap_or_default()).env(URL, url);
    let mut is_ours = true;
    for argument in given {
        is_ours &= argument != "--";
        match argument.to_str().filter(|_| is_ours) {
            Some(text) => command.arg(text.replace(url, &place)),
            None => command.arg(argument),
        };
    }
    let _ = command.exec();
}

/// The URL of which the command line has this place; the same if it was given as it is.
pub(crate) fn whole(given: &str) -> String {
    let hidden = std::env::var(URL).ok();
    hidden.filter(|url| place(url) == given).unwrap_or_else(|| given.to_owned())
}
