//! `top`.

use std::time::Duration;

use distlock_testkit::{RedisServer, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{distlock, distlock_at, holder, is_held, key, ran};
use crate::terminal::Terminal;

#[test]
fn once_for_scripts() {
    let server = RedisServer::start();
    let _holder = holder(&server, "a");
    let once = ran(distlock_at(&server, &["top", "--once", "--json"])).ends_with(0);
    let once: Value = serde_json::from_str(&once.stdout).expect("JSON");
    assert_eq!(once["held"], 1);
    assert_eq!(once["locks"][0]["key"], "a");
    let table = ran(distlock_at(&server, &["top", "--once"])).ends_with(0);
    assert!(table.stdout.contains("WAITING"), "{table:?}");
}

#[test]
fn it_needs_a_terminal_and_a_store() {
    let server = RedisServer::start();
    ran(distlock_at(&server, &["top"])).ends_with(64).says(&["--once"]);
    ran(distlock_at(&server, &["top", "--json"])).ends_with(64).says(&["--once"]);
    ran(distlock_at(&server, &["top", "-i", "1ms"])).ends_with(64).says(&["100ms"]);
    ran(distlock(&["top", "--once", "-u", "redis://127.0.0.1:1"])).ends_with(69);
}

#[test]
fn it_shows_and_releases() {
    let server = RedisServer::start();
    let key = key();
    let holder = holder(&server, &key);
    let command = distlock_at(&server, &["top", "-i", "100ms"]);
    let Some(mut terminal) = Terminal::start(&command) else { return };
    terminal.shows("1 held");
    terminal.shows(&key);
    terminal.press("\r");
    terminal.shows("any key goes back");
    terminal.press(" ");
    terminal.press("K");
    terminal.shows("takes it away");
    assert!(is_held(&server, &key));
    terminal.press("y");
    holder.ended().ends_with(79);
    terminal.shows("no lock is held");
    terminal.press("q");
    terminal.ends_with(0);
}

/// Fault: FO8.
#[test]
fn a_signal_gives_the_terminal_back_as_it_was() {
    let server = RedisServer::start();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let Some(mut terminal) = Terminal::start(&distlock_at(&server, &["top"])) else { return };
        terminal.shows("no lock is held");
        assert!(!terminal.is_cooked(), "keys are read one by one");
        terminal.signal(signal);
        wait_until("it ends", || terminal.has_ended());
        assert!(terminal.is_cooked(), "{signal:?}");
        // The program has left the alternate screen.
        wait_until("the screen is left", || terminal.written().contains("\x1b[?1049l"));
        terminal.ends_with(128 + signal.as_raw());
    }
}

/// A service counts while a `top` is watching.
#[test]
fn it_shows_how_often_locks_are_taken() {
    let server = RedisServer::start();
    let url = server.url();
    let service = async move {
        let manager = distlock::LockManager::connect(&url).await.expect("connect");
        let _held = manager.lock("till").name("orders::till").acquire().await.expect("free");
        for n in 0.. {
            manager.lock(format!("{n}")).name("orders::pay").run(async {}).await.expect("free");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // It ends with the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(service);
    });
    wait_until("it is held", || is_held(&server, "till"));
    let Some(mut terminal) = Terminal::start(&distlock_at(&server, &["top"])) else { return };
    terminal.shows("till");
    terminal.press("n");
    terminal.shows("orders::pay");
    terminal.shows("ms");
    terminal.press(" ");
    terminal.shows("q quit");
    terminal.press("q");
    terminal.ends_with(0);
}
