//! What is shown, and what keys do to it.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::watch::{Seen, Watch};
use crate::locks::details::One;
use crate::locks::held::Held;
use crate::locks::pattern::fits;

/// How many rows a page of them is.
const PAGE: usize = 10;

/// By what locks are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Waiting,
    Key,
    Holder,
    Held,
    Lease,
}

impl Order {
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

/// What has the keyboard.
#[derive(Debug)]
pub(super) enum Focus {
    Table,
    /// The names of locks are shown, with how often they are taken; from this row on.
    Names(usize),
    /// A filter is typed.
    Filter,
    /// One lock is shown; `None` if it is free by now.
    One(String, Option<Box<One>>),
    /// Whether to take this lock away is asked.
    Confirm(String),
}

/// What a key asks for that takes more than a change of what is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Inspect(String),
    Release(String),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) focus: Focus,
    /// Which row is chosen, and how many there are.
    pub(super) chosen: usize,
    rows: usize,
    chosen_key: Option<String>,
    /// What came of what was done last.
    pub(super) said: Option<String>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            order: Order::Waiting,
            filter: String::new(),
            focus: Focus::Table,
            chosen: 0,
            rows: 0,
            chosen_key: None,
            said: None,
        }
    }

    /// The locks that are shown, in order. The chosen one stays chosen wherever it goes.
    pub(super) fn rows<'w>(&mut self, watch: &'w Watch) -> Vec<&'w Seen> {
        let mut rows: Vec<&Seen> = watch.locks().filter(|seen| self.shows(&seen.held)).collect();
        // Equal ones stay sorted by key.
        match self.order {
            Order::Waiting => rows.sort_by_key(|seen| Reverse(seen.held.waiting)),
            Order::Key => {}
            Order::Holder => rows.sort_by_key(|seen| seen.held.holder()),
            Order::Held => rows.sort_by_key(|seen| seen.since),
            Order::Lease => {
                rows.sort_by_key(|seen| seen.held.remaining.unwrap_or(Duration::MAX));
            }
        }
        let at = rows.iter().position(|seen| Some(&seen.held.key) == self.chosen_key.as_ref());
        self.chosen = at.unwrap_or(self.chosen).min(rows.len().saturating_sub(1));
        self.chosen_key = rows.get(self.chosen).map(|seen| seen.held.key.clone());
        self.rows = rows.len();
        rows
    }

    /// A filter is a pattern, or a part of the key or of the holder.
    fn shows(&self, held: &Held) -> bool {
        let filter = &self.filter;
        filter.is_empty()
            || fits(filter, &held.key)
            || held.key.contains(filter)
            || held.holder().contains(filter)
    }

    /// There are so many `names`.
    pub(super) fn press(&mut self, key: KeyEvent, watch: &Watch, names: usize) -> Option<Action> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Action::Quit);
        }
        self.said = None;
        let action = match std::mem::replace(&mut self.focus, Focus::Table) {
            Focus::Table => self.press_in_table(key.code),
            Focus::Names(first) => return self.press_in_names(key.code, first, names),
            Focus::Filter => {
                self.press_in_filter(key.code);
                None
            }
            Focus::One(..) => None,
            Focus::Confirm(lock) => {
                matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(Action::Release(lock))
            }
        };
        self.rows(watch);
        action
    }

    fn press_in_table(&mut self, key: KeyCode) -> Option<Action> {
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(Action::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('n') => self.focus = Focus::Names(0),
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.chosen.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.chosen + 1),
            KeyCode::PageUp => self.choose(self.chosen.saturating_sub(PAGE)),
            KeyCode::PageDown => self.choose(self.chosen + PAGE),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(self.rows),
            KeyCode::Enter => return self.chosen_key.clone().map(Action::Inspect),
            KeyCode::Char('K') => {
                if let Some(key) = self.chosen_key.clone() {
                    self.focus = Focus::Confirm(key);
                }
            }
            _ => {}
        }
        None
    }

    fn press_in_names(&mut self, key: KeyCode, first: usize, names: usize) -> Option<Action> {
        let first = match key {
            KeyCode::Char('q') => return Some(Action::Quit),
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

    fn watch() -> Watch {
        let locks = [("a", 1), ("b", 3), ("c", 2)];
        Watch::of(
            locks.iter().map(|(key, waiting)| Held::example(key, "p.1.1s", *waiting)).collect(),
        )
    }

    fn shown(state: &mut State, watch: &Watch) -> Vec<String> {
        state.rows(watch).iter().map(|seen| seen.held.key.clone()).collect()
    }

    fn press(state: &mut State, key: KeyCode) -> Option<Action> {
        state.press(KeyEvent::new(key, KeyModifiers::NONE), &watch(), 3)
    }

    #[test]
    fn sorted_by_waiters_then_by_key() {
        let mut state = State::new();
        assert_eq!(shown(&mut state, &watch()), ["b", "c", "a"]);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(shown(&mut state, &watch()), ["a", "b", "c"]);
    }

    #[test]
    fn the_chosen_one_stays_chosen() {
        let mut state = State::new();
        shown(&mut state, &watch());
        press(&mut state, KeyCode::Down);
        assert_eq!(press(&mut state, KeyCode::Enter), Some(Action::Inspect("c".to_owned())));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(press(&mut state, KeyCode::Enter), Some(Action::Inspect("c".to_owned())));
        for _ in 0..9 {
            press(&mut state, KeyCode::Down);
        }
        assert_eq!(state.chosen, 2);
    }

    #[test]
    fn a_filter_is_typed() {
        let mut state = State::new();
        for key in ['/', 'b'] {
            press(&mut state, KeyCode::Char(key));
        }
        assert_eq!(shown(&mut state, &watch()), ["b"]);
        press(&mut state, KeyCode::Enter);
        assert!(matches!(state.focus, Focus::Table));
        press(&mut state, KeyCode::Esc);
        assert_eq!(shown(&mut state, &watch()).len(), 3);
    }

    #[test]
    fn names_are_another_table() {
        let mut state = State::new();
        shown(&mut state, &watch());
        press(&mut state, KeyCode::Char('n'));
        for (key, first) in [(KeyCode::Down, 1), (KeyCode::PageDown, 2), (KeyCode::Home, 0)] {
            press(&mut state, key);
            assert!(matches!(state.focus, Focus::Names(at) if at == first), "{key:?}");
        }
        assert_eq!(press(&mut state, KeyCode::Enter), None);
        assert!(matches!(state.focus, Focus::Table));
    }

    #[test]
    fn nothing_is_released_without_asking() {
        let mut state = State::new();
        shown(&mut state, &watch());
        assert_eq!(press(&mut state, KeyCode::Char('K')), None);
        assert_eq!(press(&mut state, KeyCode::Enter), None);
        press(&mut state, KeyCode::Char('K'));
        assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Action::Release("b".to_owned())));
    }
}
