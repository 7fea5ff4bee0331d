//! Draws the screen.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::rates::{LockRate, LockRates};
use super::screen::{Focus, Screen, SortColumn};
use super::watch::{LockWatch, WatchedLock};
use crate::locks::details::LockDetails;
use crate::locks::held::HeldLock;
use crate::text::{quoted, shown};

/// Draws the whole screen.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    title: &str,
    watch: &LockWatch,
    rates: &LockRates,
    screen: &mut Screen,
) {
    let parts = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
    let rows = screen.rows(watch);
    frame.render_widget(header(title, watch, rows.len()), head);
    let all = rates.all();
    match screen.focus {
        Focus::Names(first) => names(frame, body, (rates, &all), first),
        _ if rows.is_empty() => frame.render_widget(no_locks(watch, screen), body),
        _ => table(frame, body, &rows, (rates, &all), screen),
    }
    frame.render_widget(footer(screen), foot);
    if let Focus::Details(key, held) = &screen.focus {
        details(frame, body, key, held.as_deref());
    }
}

fn header(title: &str, watch: &LockWatch, shown: usize) -> Line<'static> {
    let waiting: u64 = watch.locks().map(|lock| lock.held.glance.waiting).sum();
    let all = watch.locks().count();
    let mut text = format!("distlock top  {title}  {all} held, {waiting} waiting");
    if shown != all {
        text += &format!(", {shown} shown");
    }
    if !watch.is_whole {
        text += ", still looking";
    }
    match &watch.trouble {
        Some(trouble) => {
            Line::styled(format!("distlock top  {title}  {trouble}"), Style::new().red())
        }
        None => Line::styled(text, Style::new().add_modifier(Modifier::BOLD)),
    }
}

fn no_locks(watch: &LockWatch, screen: &Screen) -> Paragraph<'static> {
    let text = match (&watch.trouble, screen.filter.is_empty()) {
        (Some(_), _) => "",
        (None, true) => "no lock is held",
        (None, false) => "no lock that is held fits the filter",
    };
    Paragraph::new(format!("\n  {text}"))
}

/// In a terminal of this width, there is room for names beside keys.
const WIDE: u16 = 110;
/// In a narrower terminal, there is room for keys, holders and the mode only.
const NARROW: u16 = 64;

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: &[&WatchedLock],
    (rates, all): (&LockRates, &[LockRate]),
    screen: &Screen,
) {
    let now = Instant::now();
    let is_wide = area.width >= WIDE;
    let mut columns = vec![
        (Some(SortColumn::Key), "KEY", Constraint::Fill(3)),
        (Some(SortColumn::Holder), "HOLDER", Constraint::Fill(2)),
        (Some(SortColumn::Held), "HELD", Constraint::Length(8)),
        (Some(SortColumn::Lease), "LEASE", Constraint::Length(7)),
        (Some(SortColumn::Waiting), "WAITING", Constraint::Length(7)),
        (None, "TAKEN/S", Constraint::Length(7)),
        (None, "P99", Constraint::Length(6)),
    ];
    let is_any_shared = rows.iter().any(|lock| !lock.mode().is_empty());
    if is_any_shared {
        columns.insert(2, (None, "MODE", Constraint::Length(5)));
    }
    if area.width < NARROW {
        columns.truncate(3);
    }
    if is_wide {
        columns.push((None, "CHANGES/MIN", Constraint::Length(11)));
        columns.push((None, "NAME", Constraint::Fill(2)));
    }
    let heads = columns.iter().map(|(column, name, _)| {
        let is_sorted = *column == Some(screen.sort);
        let style = if is_sorted { Style::new().reversed() } else { Style::new().bold() };
        Cell::new(*name).style(style)
    });
    // Makes no more rows than fit, because there may be thousands.
    let height = usize::from(area.height.saturating_sub(1));
    let first = (screen.chosen + 1).saturating_sub(height.max(1));
    let widths: Vec<Constraint> = columns.iter().map(|(_, _, width)| *width).collect();
    // Computes the widths like the table, with one space between two columns.
    let holder = Layout::horizontal(widths.clone()).spacing(1).split(area)[1].width;
    let lines = rows.iter().skip(first).take(height).map(|lock| {
        let reported = rates.held(&lock.stored);
        let rate = reported.and_then(|(name, _)| all.iter().find(|rate| rate.name == name));
        let mut cells = row(lock, now, reported, rate, usize::from(holder)).to_vec();
        if is_any_shared {
            cells.insert(2, lock.mode());
        }
        cells.truncate(columns.len());
        Row::new(cells)
    });
    let table = Table::new(lines, widths)
        .header(Row::new(heads))
        .row_highlight_style(Style::new().reversed());
    let mut chosen = TableState::new().with_selected(Some(screen.chosen - first));
    frame.render_stateful_widget(table, area, &mut chosen);
}

/// Makes a row. `reported` is the name and the start time that the holder reports; `holder` is the width of the holders'
/// column.
fn row(
    lock: &WatchedLock,
    now: Instant,
    reported: Option<(&str, Instant)>,
    rate: Option<&LockRate>,
    holder: usize,
) -> [String; 9] {
    let changes = lock.changes_a_minute(now);
    [
        shown(&lock.held.key),
        lock.held.holder_within(holder),
        reported.map_or_else(|| held_for(lock, now), |(_, since)| short(now.duration_since(since))),
        lease(&lock.held),
        lock.held.glance.waiting.to_string(),
        rate.map(|rate| frequency(rate.a_second)).unwrap_or_default(),
        rate.map(waited).unwrap_or_default(),
        if changes > 0.0 { format!("{changes:.0}") } else { String::new() },
        reported.map(|(name, _)| shown(name)).unwrap_or_default(),
    ]
}

fn lease(held: &HeldLock) -> String {
    match held.glance.remaining {
        Some(rest) => short(rest),
        None if held.glance.amiss.is_some() => String::new(),
        None => "no end".to_owned(),
    }
}

/// Draws the lock names and their rates.
fn names(frame: &mut Frame<'_>, area: Rect, (rates, all): (&LockRates, &[LockRate]), first: usize) {
    if all.is_empty() {
        let text = match rates.has_reports() {
            true => "\n  no lock was taken since this looks",
            false => "\n  no process says how often it takes locks",
        };
        return frame.render_widget(Paragraph::new(text), area);
    }
    let line =
        |rate: &LockRate| Row::new([shown(&rate.name), frequency(rate.a_second), waited(rate)]);
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(9)];
    let heads = ["NAME", "TAKEN/S", "P99 WAIT"].map(|head| Cell::new(head).bold());
    let lines = all.iter().skip(first).take(usize::from(area.height)).map(line);
    frame.render_widget(Table::new(lines, widths).header(Row::new(heads)), area);
}

/// Formats a rate in at most six characters.
fn frequency(a_second: f64) -> String {
    match a_second {
        0.0 => "0".to_owned(),
        ..100.0 => format!("{a_second:.1}"),
        ..100_000.0 => format!("{a_second:.0}"),
        _ => format!("{:.0}k", a_second / 1000.0),
    }
}

/// Formats the waiting time.
fn waited(rate: &LockRate) -> String {
    match rate.p99 {
        Some(wait) if wait < Duration::from_secs(1) => {
            format!("{}ms", wait.as_secs_f64() * 1000.0)
        }
        Some(wait) => format!("{}s", wait.as_secs_f64()),
        None if rate.a_second > 0.0 => ">1m".to_owned(),
        None => String::new(),
    }
}

/// Formats the age of a lease, with a `>` if the lease is older than this process knows.
fn held_for(lock: &WatchedLock, now: Instant) -> String {
    let time = short(now.duration_since(lock.since));
    if lock.is_since_exact { time } else { format!(">{time}") }
}

/// Formats a duration in at most six characters.
fn short(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{secs}s"),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d", secs / 86_400),
    }
}

fn footer(screen: &Screen) -> Line<'static> {
    match &screen.focus {
        Focus::Filter => {
            Line::raw(format!("filter: {}_   Enter keeps it, Esc ends it", screen.filter))
        }
        Focus::Confirm(key) => Line::styled(
            format!("y takes it away from its holder, any other key does not: {}", quoted(key)),
            Style::new().red().bold(),
        ),
        Focus::Details(..) => Line::raw("any key goes back"),
        Focus::Names(_) => Line::raw("locks taken in a second, and how long 99 of 100 calls waited at most   any key goes back").dim(),
        Focus::Table => match (&screen.message, screen.filter.is_empty()) {
            (Some(message), _) => Line::raw(message.clone()),
            (None, true) => {
                Line::raw("s sort   / filter   n names   Enter inspect   K release   q quit").dim()
            }
            (None, false) => Line::raw(format!(
                "filter: {}   Esc ends it   Enter inspect   K release   q quit",
                screen.filter
            ))
            .dim(),
        },
    }
}

/// Draws the details of one lock over the table.
fn details(frame: &mut Frame<'_>, area: Rect, key: &str, found: Option<&LockDetails>) {
    let lines = match found {
        None => vec![Line::raw("it is free")],
        Some(details) => details.lines().into_iter().map(Line::raw).collect(),
    };
    let width = area.width.min(72);
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let block = Block::bordered().title(format!(" {} ", quoted(key)));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use crate::locks::process::ClientProcess;

    use super::*;

    fn drawn(width: u16, height: u16, locks: usize, screen: &mut Screen) -> Vec<String> {
        let held =
            (0..locks).map(|n| HeldLock::example(&format!("order:{n:03}"), "abc.1.1s", n as u64));
        let watch = LockWatch::of(held.collect());
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal
            .draw(|frame| draw(frame, "redis://host", &watch, &LockRates::default(), screen))
            .expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[test]
    fn none_few_and_many_in_small_and_wide_terminals() {
        for (width, height) in [(80, 24), (200, 50), (20, 3), (1, 1)] {
            for locks in [0, 5, 500] {
                let screen = drawn(width, height, locks, &mut Screen::new());
                if width < 80 {
                    continue;
                }
                assert!(screen[0].contains(&format!("{locks} held")), "{screen:?}");
                let rows = screen.iter().filter(|line| line.starts_with("order:")).count();
                assert_eq!(rows, locks.min(usize::from(height) - 3), "{screen:?}");
                assert!(locks > 0 || screen[2].contains("no lock is held"), "{screen:?}");
            }
        }
    }

    #[test]
    fn the_chosen_one_is_seen_however_far_down() {
        let mut screen = Screen::new();
        screen.chosen = 400;
        let screen = drawn(80, 24, 500, &mut screen);
        // Sorted by waiters, of which order:N has N.
        assert!(screen.iter().any(|line| line.starts_with("order:099")), "{screen:?}");
    }

    /// Fault: FO8.
    #[test]
    fn modes_and_the_number_of_holders_are_seen_in_a_usual_terminal() {
        let mut readers = HeldLock::example("report", "abcdefghijkl.1.1000sr", 0);
        (readers.glance.alone, readers.holders) =
            (false, vec![ClientProcess::unknown("abcdefghijkl"); 124]);
        let mut permits = HeldLock::example("pool", "abcdefghijkl.1.1000s5", 0);
        (permits.glance.alone, permits.holders) =
            (false, vec![ClientProcess::unknown("abcdefghijkl"); 3]);
        let watch =
            LockWatch::of(vec![readers, permits, HeldLock::example("order:1", "abc.1.1s", 2)]);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        let (rates, mut screen) = (LockRates::default(), Screen::new());
        terminal
            .draw(|frame| draw(frame, "redis://host", &watch, &rates, &mut screen))
            .expect("drawn");
        let screen = terminal.backend().to_string();
        let line = |key: &str| {
            screen
                .lines()
                .find(|line| line.trim_start_matches('"').starts_with(key))
                .expect("a row")
        };
        assert!(line("report").contains(" +123 ") && line("report").contains(" read "), "{screen}");
        assert!(line("pool").contains(" +2 ") && line("pool").contains(" 3/5 "), "{screen}");
        assert!(line("KEY").contains("MODE") && !line("order:1").contains('/'), "{screen}");
    }

    #[test]
    fn durations_are_short() {
        for (secs, text) in
            [(3, "3.0s"), (42, "42s"), (62, "1m02s"), (7260, "2h01m"), (864_000, "10d")]
        {
            assert_eq!(short(Duration::from_secs(secs)), text);
        }
    }
}
