//! The screen of the screen, and the effect of keys on it.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::watch::{LockWatch, WatchedLock};
use crate::locks::details::LockDetails;
use crate::locks::held::HeldLock;
use crate::locks::pattern::matches_pattern;

/// The number of rows that a page key moves.
const PAGE: usize = 10;

/// The column by which locks are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortColumn {
    Waiting,
    Key,
    Holder,
    Held,
    Lease,
}

impl SortColumn {
    fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Key,
            Self::Key => Self::Holder,
            Self::Holder => Self::Held,
            Self::Held => Self::Lease,
            Self::Lease => Self::Waiting,
        }
    }
}

/// The part of the screen that has the keyboard.
#[derive(Debug)]
pub(super) enum Focus {
    Table,
    /// The rates of lock names, from this row on.
    Names(usize),
    /// The filter that the user types.
    Filter,
    /// The details of one lock; `None` if it is free by now.
    Details(String, Option<Box<LockDetails>>),
    /// The question whether to take this lock away.
    Confirm(String),
}

/// The action of a key that does more than change the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    Inspect(String),
    Release(String),
}

/// The screen of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) sort: SortColumn,
    pub(super) filter: String,
    pub(super) focus: Focus,
    /// The index of the chosen row.
    pub(super) chosen: usize,
    /// The number of rows.
    rows: usize,
    chosen_key: Option<String>,
    /// The result of the last action.
    pub(super) message: Option<String>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            sort: SortColumn::Waiting,
            filter: String::new(),
            focus: Focus::Table,
            chosen: 0,
            rows: 0,
            chosen_key: None,
            message: None,
        }
    }

    /// Returns the locks to show, in order. The chosen lock stays chosen if its row changes.
    pub(super) fn rows<'w>(&mut self, watch: &'w LockWatch) -> Vec<&'w WatchedLock> {
        let mut rows: Vec<&WatchedLock> =
            watch.locks().filter(|lock| self.shows(&lock.held)).collect();
        // The sort is stable, so equal locks stay sorted by key.
        match self.sort {
            SortColumn::Waiting => rows.sort_by_key(|lock| Reverse(lock.held.glance.waiting)),
            SortColumn::Key => {}
            SortColumn::Holder => rows.sort_by_key(|lock| lock.held.holder()),
            SortColumn::Held => rows.sort_by_key(|lock| lock.since),
            SortColumn::Lease => {
                rows.sort_by_key(|lock| lock.held.glance.remaining.unwrap_or(Duration::MAX));
            }
        }
        let at = rows.iter().position(|lock| Some(&lock.held.key) == self.chosen_key.as_ref());
        self.chosen = at.unwrap_or(self.chosen).min(rows.len().saturating_sub(1));
        self.chosen_key = rows.get(self.chosen).map(|lock| lock.held.key.clone());
        self.rows = rows.len();
        rows
    }

    /// Whether the lock passes the filter, which is a pattern, or a part of the key or of the holder.
    fn shows(&self, held: &HeldLock) -> bool {
        let filter = &self.filter;
        filter.is_empty()
            || matches_pattern(filter, &held.key)
            || held.key.contains(filter)
            || held.holder().contains(filter)
    }

    /// Handles a key. `names` is the number of lock names.
    pub(super) fn press(
        &mut self,
        key: KeyEvent,
        watch: &LockWatch,
        names: usize,
    ) -> Option<KeyAction> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(KeyAction::Quit);
        }
        self.message = None;
        let action = match std::mem::replace(&mut self.focus, Focus::Table) {
            Focus::Table => self.press_in_table(key.code),
            Focus::Names(first) => return self.press_in_names(key.code, first, names),
            Focus::Filter => {
                self.press_in_filter(key.code);
                None
            }
            Focus::Details(..) => None,
            Focus::Confirm(lock) => {
                matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(KeyAction::Release(lock))
            }
        };
        self.rows(watch);
        action
    }

    fn press_in_table(&mut self, key: KeyCode) -> Option<KeyAction> {
        match key {
            KeyCode::Char('q') => return Some(KeyAction::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(KeyAction::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('n') => self.focus = Focus::Names(0),
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.chosen.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.chosen + 1),
            KeyCode::PageUp => self.choose(self.chosen.saturating_sub(PAGE)),
            KeyCode::PageDown => self.choose(self.chosen + PAGE),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(self.rows),
            KeyCode::Enter => return self.chosen_key.clone().map(KeyAction::Inspect),
            KeyCode::Char('K') => {
                if let Some(key) = self.chosen_key.clone() {
                    self.focus = Focus::Confirm(key);
                }
            }
            _ => {}
        }
        None
    }

    fn press_in_names(&mut self, key: KeyCode, first: usize, names: usize) -> Option<KeyAction> {
        let first = match key {
            KeyCode::Char('q') => return Some(KeyAction::Quit),
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => first + 1,
            KeyCode::PageUp => first.saturating_sub(PAGE),
            KeyCode::PageDown => first + PAGE,
            KeyCode::Home => 0,
            KeyCode::End => names,
            _ => return None,
        };
        self.focus = Focus::Names(first.min(names.saturating_sub(1)));
        None
    }

    fn choose(&mut self, row: usize) {
        self.chosen = row.min(self.rows.saturating_sub(1));
        self.chosen_key = None;
    }

    fn press_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.filter.clear(),
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            _ => {}
        }
        self.focus = Focus::Filter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> LockWatch {
        let locks = [("a", 1), ("b", 3), ("c", 2)];
        LockWatch::of(
            locks.iter().map(|(key, waiting)| HeldLock::example(key, "p.1.1s", *waiting)).collect(),
        )
    }

    fn shown(screen: &mut Screen, watch: &LockWatch) -> Vec<String> {
        screen.rows(watch).iter().map(|lock| lock.held.key.clone()).collect()
    }

    fn press(screen: &mut Screen, key: KeyCode) -> Option<KeyAction> {
        screen.press(KeyEvent::new(key, KeyModifiers::NONE), &watch(), 3)
    }

    #[test]
    fn sorted_by_waiters_then_by_key() {
        let mut screen = Screen::new();
        assert_eq!(shown(&mut screen, &watch()), ["b", "c", "a"]);
        press(&mut screen, KeyCode::Char('s'));
        assert_eq!(shown(&mut screen, &watch()), ["a", "b", "c"]);
    }

    #[test]
    fn the_chosen_one_stays_chosen() {
        let mut screen = Screen::new();
        shown(&mut screen, &watch());
        press(&mut screen, KeyCode::Down);
        assert_eq!(press(&mut screen, KeyCode::Enter), Some(KeyAction::Inspect("c".to_owned())));
        press(&mut screen, KeyCode::Char('s'));
        assert_eq!(press(&mut screen, KeyCode::Enter), Some(KeyAction::Inspect("c".to_owned())));
        for _ in 0..9 {
            press(&mut screen, KeyCode::Down);
        }
        assert_eq!(screen.chosen, 2);
    }

    #[test]
    fn a_filter_is_typed() {
        let mut screen = Screen::new();
        for key in ['/', 'b'] {
            press(&mut screen, KeyCode::Char(key));
        }
        assert_eq!(shown(&mut screen, &watch()), ["b"]);
        press(&mut screen, KeyCode::Enter);
        assert!(matches!(screen.focus, Focus::Table));
        press(&mut screen, KeyCode::Esc);
        assert_eq!(shown(&mut screen, &watch()).len(), 3);
    }

    #[test]
    fn names_are_another_table() {
        let mut screen = Screen::new();
        shown(&mut screen, &watch());
        press(&mut screen, KeyCode::Char('n'));
        for (key, first) in [(KeyCode::Down, 1), (KeyCode::PageDown, 2), (KeyCode::Home, 0)] {
            press(&mut screen, key);
            assert!(matches!(screen.focus, Focus::Names(at) if at == first), "{key:?}");
        }
        assert_eq!(press(&mut screen, KeyCode::Enter), None);
        assert!(matches!(screen.focus, Focus::Table));
    }

    #[test]
    fn nothing_is_released_without_asking() {
        let mut screen = Screen::new();
        shown(&mut screen, &watch());
        assert_eq!(press(&mut screen, KeyCode::Char('K')), None);
        assert_eq!(press(&mut screen, KeyCode::Enter), None);
        press(&mut screen, KeyCode::Char('K'));
        assert_eq!(
            press(&mut screen, KeyCode::Char('y')),
            Some(KeyAction::Release("b".to_owned()))
        );
    }
}
