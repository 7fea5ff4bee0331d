//! `distlock top`: the locks, live.

pub(crate) mod options;
mod rates;
mod screen;
mod view;
mod watch;

use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use distlock::__console::Counted;
use distlock::LockManager;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use self::options::TopOptions;
use self::rates::Rates;
use self::screen::{Action, Focus, State};
use self::watch::Watch;
use crate::exit;
use crate::failure::{Failure, describe};
use crate::locks::details::One;
use crate::locks::held::{Held, table};
use crate::locks::reader::{Found, Locks};
use crate::messages;
use crate::store::Named;
use crate::text::{quoted, shown};

pub(crate) async fn top(store: &Named, options: &TopOptions) -> Result<u8, Failure> {
    let in_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !options.once && !in_terminal {
        return Err(Failure::usage("top needs a terminal; --once prints what it would show"));
    }
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    if options.once {
        return once(&locks, options.json).await;
    }
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let outcome = tokio::select! {
        outcome = live(&mut terminal, store, &locks, options.interval) => outcome.map(|()| exit::OK),
        // The terminal is restored before this process ends.
        signal = ended() => Ok(exit::signalled(signal)),
    };
    ratatui::restore();
    outcome
}

/// Resolves with the first signal that ends a program.
async fn ended() -> i32 {
    let catch = |kind: SignalKind| signal(kind).ok().map(|signal| (kind.as_raw_value(), signal));
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(catch).collect();
    poll_fn(|cx| {
        let mut came = signals.iter_mut();
        let came = came.find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
        came.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

async fn once(locks: &Locks<'_>, as_json: bool) -> Result<u8, Failure> {
    let Found { mut held, missed, .. } = locks.held(|_| true, usize::MAX).await?;
    held.sort_by_key(|held| std::cmp::Reverse(held.waiting));
    if as_json {
        let waiting: u64 = held.iter().map(|held| held.waiting).sum();
        let list: Vec<_> = held.iter().map(Held::json).collect();
        messages::print_json(&json!({ "held": held.len(), "waiting": waiting, "locks": list }))?;
    } else {
        messages::print(&table(&held))?;
    }
    for (node, why) in &missed {
        messages::plain(&format!("the locks of {} are missing: {}", shown(node), shown(why)));
    }
    Ok(if missed.is_empty() { exit::OK } else { exit::STORE })
}

async fn live(
    terminal: &mut DefaultTerminal,
    store: &Named,
    locks: &Locks<'_>,
    interval: Duration,
) -> Result<(), Failure> {
    let place = shown(&format!("{}  {}", store.place(), store.prefix));
    let (mut watch, mut state) = (Watch::new(), State::new());
    let mut events = events();
    let mut rates = Rates::default();
    let mut asked: Option<JoinHandle<Vec<Counted>>> = None;
    let mut ticks = tokio::time::interval(interval);
    // A store that was slow is not asked twice as often afterwards.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                watch.look(locks).await;
                // Beside all else: a process that stands still is waited for.
                asked.get_or_insert_with(|| ask(locks.manager.clone()));
            }
            counted = answer(&mut asked) => {
                asked = None;
                rates.take_in(counted, Instant::now());
            }
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    match state.press(key, &watch, rates.all().len()) {
                        Some(Action::Quit) => return Ok(()),
                        Some(action) => grant(action, locks, &mut watch, &mut state).await,
                        None => {}
                    }
                }
                Some(_) => {}
                // The terminal is gone.
                None => return Ok(()),
            },
        }
        let drawn = terminal.draw(|frame| view::draw(frame, &place, &watch, &rates, &mut state));
        drawn.map_err(broken)?;
    }
}

/// What processes say of how often they take locks; nothing where they cannot be asked.
fn ask(manager: LockManager) -> JoinHandle<Vec<Counted>> {
    tokio::spawn(async move { manager.counted().await.unwrap_or_default() })
}

/// Cancel safe.
async fn answer(asked: &mut Option<JoinHandle<Vec<Counted>>>) -> Vec<Counted> {
    match asked {
        Some(asked) => asked.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

async fn grant(action: Action, locks: &Locks<'_>, watch: &mut Watch, state: &mut State) {
    match action {
        Action::Quit => {}
        Action::Inspect(key) => match One::look(locks, &key).await {
            Ok(found) => state.focus = Focus::One(key, found.map(Box::new)),
            Err(failure) => state.said = Some(failure.text),
        },
        Action::Release(key) => {
            state.said = Some(match locks.manager.force_release(key.as_str()).await {
                Ok(true) => format!("{} was taken away", quoted(&key)),
                Ok(false) => format!("{} was free by then", quoted(&key)),
                Err(error) => describe(&error),
            });
            watch.look(locks).await;
        }
    }
}

/// What the terminal sends, read by a thread of its own until the terminal is gone.
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

fn broken(error: io::Error) -> Failure {
    Failure { text: format!("the terminal cannot be used: {error}"), code: exit::FAILED }
}
