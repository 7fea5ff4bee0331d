//! `distlock top`: a live view of the locks.

mod rates;
mod screen;
mod view;
mod watch;

use std::cmp::Reverse;
use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use self::rates::LockRates;
use self::screen::{Focus, KeyAction, Screen};
use self::watch::LockWatch;
use crate::admin::Counted;
use crate::exit::{self, Failure, describe};
use crate::locks::details::LockDetails;
use crate::locks::held::{HeldLock, table};
use crate::locks::reader::{LockList, LockReader};
use crate::messages;
use crate::store::StoreConfig;
use crate::text::{quoted, shown};

/// The options of `distlock top`.
pub(crate) struct TopOptions {
    pub(crate) interval: Duration,
    pub(crate) once: bool,
    pub(crate) json: bool,
}

/// Shows the locks until the user quits.
pub(crate) async fn top(store: &StoreConfig, options: &TopOptions) -> Result<u8, Failure> {
    let in_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !options.once && !in_terminal {
        return Err(Failure::usage("top needs a terminal; --once prints what it would show"));
    }
    let manager = store.connect().await?;
    let reader = LockReader::new(store, &manager)?;
    if options.once {
        return once(&reader, options.json).await;
    }
    let mut terminal = ratatui::try_init().map_err(terminal_failure)?;
    let outcome = tokio::select! {
        outcome = live(&mut terminal, store, &reader, options.interval) => outcome.map(|()| exit::OK),
        // A signal ends this process only after the terminal is restored.
        signal = ending_signal() => Ok(exit::signalled(signal)),
    };
    ratatui::restore();
    outcome
}

/// Waits for a signal that ends a program.
async fn ending_signal() -> i32 {
    let catch = |kind: SignalKind| signal(kind).ok().map(|signal| (kind.as_raw_value(), signal));
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(catch).collect();
    poll_fn(|cx| {
        let mut signals = signals.iter_mut();
        let received =
            signals.find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
        received.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

async fn once(reader: &LockReader<'_>, as_json: bool) -> Result<u8, Failure> {
    let LockList { mut locks, missed, .. } = reader.list(|_| true, usize::MAX).await?;
    locks.sort_by_key(|held| Reverse(held.glance.waiting));
    if as_json {
        let waiting: u64 = locks.iter().map(|held| held.glance.waiting).sum();
        let list: Vec<_> = locks.iter().map(HeldLock::json).collect();
        messages::print_json(&json!({ "held": locks.len(), "waiting": waiting, "locks": list }))?;
    } else {
        messages::print(&table(&locks))?;
    }
    for (node, why) in &missed {
        messages::plain(&format!("the locks of {} are missing: {}", shown(node), shown(why)));
    }
    Ok(if missed.is_empty() { exit::OK } else { exit::STORE })
}

async fn live(
    terminal: &mut DefaultTerminal,
    store: &StoreConfig,
    reader: &LockReader<'_>,
    interval: Duration,
) -> Result<(), Failure> {
    let title = shown(&format!("{}  {}", store.public_url(), store.prefix));
    let (mut watch, mut screen) = (LockWatch::new(), Screen::new());
    let mut events = events();
    let mut rates = LockRates::default();
    let mut request: Option<JoinHandle<Vec<Counted>>> = None;
    let mut ticks = tokio::time::interval(interval);
    // After a slow reply, do not ask the store twice in a row.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                watch.refresh(reader).await;
                // In a task of its own, because it waits for processes that are frozen.
                request.get_or_insert_with(|| request_counts(reader.manager.clone()));
            }
            counted = reply(&mut request) => {
                request = None;
                rates.add(counted, Instant::now());
            }
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    match screen.press(key, &watch, rates.all().len()) {
                        Some(KeyAction::Quit) => return Ok(()),
                        Some(action) => perform(action, reader, &mut watch, &mut screen).await,
                        None => {}
                    }
                }
                Some(_) => {}
                // The terminal is gone.
                None => return Ok(()),
            },
        }
        let drawn = terminal.draw(|frame| view::draw(frame, &title, &watch, &rates, &mut screen));
        drawn.map_err(terminal_failure)?;
    }
}

/// Asks the processes how often they acquire locks. The result is empty if they cannot be asked.
fn request_counts(manager: LockManager) -> JoinHandle<Vec<Counted>> {
    tokio::spawn(async move { manager.counted().await.unwrap_or_default() })
}

/// Waits for the reply to a request; forever if there is none. Cancel safe.
async fn reply(request: &mut Option<JoinHandle<Vec<Counted>>>) -> Vec<Counted> {
    match request {
        Some(request) => request.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

async fn perform(
    action: KeyAction,
    reader: &LockReader<'_>,
    watch: &mut LockWatch,
    screen: &mut Screen,
) {
    match action {
        KeyAction::Quit => {}
        KeyAction::Inspect(key) => match LockDetails::read(reader, &key).await {
            Ok(found) => screen.focus = Focus::Details(key, found.map(Box::new)),
            Err(failure) => screen.message = Some(failure.text),
        },
        KeyAction::Release(key) => {
            screen.message = Some(match reader.manager.force_release(key.as_str()).await {
                Ok(true) => format!("{} was taken away", quoted(&key)),
                Ok(false) => format!("{} was free by then", quoted(&key)),
                Err(error) => describe(&error),
            });
            watch.refresh(reader).await;
        }
    }
}

/// Starts a thread that reads the terminal's events until the terminal is gone.
fn events() -> UnboundedReceiver<Event> {
    let (sender, events) = unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
}

fn terminal_failure(error: io::Error) -> Failure {
    Failure { text: format!("the terminal cannot be used: {error}"), code: exit::FAILED }
}
