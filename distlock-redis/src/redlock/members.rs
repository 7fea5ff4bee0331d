//! The servers of a quorum, which must be the same for every process.
//!
//! Two lists of the same size that differ by one server have majorities without a common server. So every
//! server has a random id of its own and keeps a list of all ids. A server counts for a process if it keeps the
//! same list as the others, and is in that list.
//!
//! An operator who replaces a server by one at another address deletes the list, and processes with the new
//! list write a new one. A process that has seen the old list does not write it again for a while
//! ([`HELD_BACK`]).
//!
//! A server that has lost its data has a new id and no list. It takes the seat of its old id if it is at the
//! address of that seat, or if this process knew it there before. Any other server is refused until an operator
//! deletes the list. The list with the new id has the next version. The other servers get it first, so that no
//! process continues with the server that had the seat before.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::redlock::majority;
use distlock_core::store::{BackendKind, Fault};
use tokio::sync::Notify;

use crate::redlock::identity::Identity;

/// For this many restart guards a process does not rewrite a list that was deleted.
const HELD_BACK: u32 = 10;

const LISTED_TWICE: &str = "two of the hosts in the URL are the same server: name each server once";
const A_COPY: &str = "two servers of the quorum have the same id, because one was started with a copy of the other's \
    data: delete the keys `<prefix>:quorum:id` and `<prefix>:quorum` at the copy";
const AT_ODDS: &str = "two processes have used these servers with different lists at the same time: give every \
    process the same list, and delete the key `<prefix>:quorum` on every server";
const NOT_READABLE: &str = "the key `<prefix>:quorum` has a value that no process of this version has written: delete \
    it on every server";

/// The servers of a quorum, as each of them keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerList {
    /// Increases whenever a server takes the seat of another one.
    version: u64,
    seats: Vec<Seat>,
}

/// The place of one server in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seat {
    /// `None` if no process has reached the server yet.
    id: Option<String>,
    /// The address, as the process that made the list spells it; others may spell it differently.
    addr: String,
}

impl ServerList {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').skip(1);
        let version = words.next()?.parse().ok()?;
        let seat = |word: &str| {
            let (id, addr) = word.split_once('@')?;
            let id = (id != "-").then(|| id.to_owned());
            Some(Seat { id, addr: addr.to_owned() })
        };
        Some(Self { version, seats: words.map(seat).collect::<Option<_>>()? })
    }

    fn text(&self) -> String {
        let mut text = format!("{} {}", size(self.seats.len()), self.version);
        for Seat { id, addr } in &self.seats {
            let _ = write!(text, " {}@{addr}", id.as_deref().unwrap_or("-"));
        }
        text
    }

    fn ids(&self) -> Vec<&str> {
        let mut ids: Vec<_> = self.seats.iter().filter_map(|seat| seat.id.as_deref()).collect();
        ids.sort_unstable();
        ids
    }

    fn has(&self, id: &str) -> bool {
        self.seats.iter().any(|seat| seat.id.as_deref() == Some(id))
    }

    /// Whether both lists have the same servers in the same version, however the addresses are spelled.
    fn is(&self, other: &Self) -> bool {
        self.version == other.version && self.ids() == other.ids()
    }

    /// Whether both may be lists of the same servers, some of which were not reached.
    fn fits(&self, other: &Self) -> bool {
        let new = other.ids().into_iter().filter(|id| !self.has(id)).count();
        self.ids().len() + new <= self.seats.len()
    }

    /// Returns how many servers both lists have in common.
    fn shares(&self, other: &Self) -> usize {
        other.ids().into_iter().filter(|id| self.has(id)).count()
    }
}

/// Returns `nodes:majority`.
fn size(nodes: usize) -> String {
    format!("{nodes}:{}", majority(nodes))
}

/// The servers of the list, as this process knows them.
#[derive(Debug)]
pub(super) struct Members {
    addrs: Box<[String]>,
    guard: Duration,
    state: Mutex<MembersState>,
    /// Changes with the list that counts.
    number: AtomicU64,
    /// Changes when something was found or written.
    pub(super) changed: Notify,
}

/// The lists and servers that this process knows, by place.
#[derive(Debug)]
struct MembersState {
    found: Vec<Option<FoundServer>>,
    /// The last id of a member at each place.
    had: Vec<Option<String>>,
    /// Since when a server that had the list no longer has it.
    deleted: Vec<Option<Moment>>,
    /// A list that should replace another one, or none.
    next: Option<(Option<ServerList>, ServerList)>,
    /// The list that counts.
    list: Option<ServerList>,
}

/// A server that was found at its place.
#[derive(Debug)]
struct FoundServer {
    run_id: String,
    id: String,
    /// The list, as the server's text.
    text: Option<String>,
    list: Option<ServerList>,
    /// The list was deleted, and other processes may be about to write another one.
    is_held_back: bool,
    /// When this was found first, and when it was read last.
    since: Moment,
    read: Moment,
}

/// The next step for a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SeatStep {
    /// The server counts as long as the list has this number.
    Member(u64),
    /// The server must be given this list in place of its own.
    Write { before: Option<String>, list: String },
    /// The other servers must be asked first.
    Wait,
}

impl Members {
    pub(super) fn at(addrs: Vec<String>, guard: Duration) -> Self {
        let found = addrs.iter().map(|_| None).collect();
        let (had, deleted) = (vec![None; addrs.len()], vec![None; addrs.len()]);
        Self {
            guard,
            // Addresses are words of a text.
            addrs: addrs.into_iter().map(|addr| addr.replace(' ', "%20")).collect(),
            state: Mutex::new(MembersState { found, had, deleted, next: None, list: None }),
            number: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Notes the answer of the server at a place.
    pub(super) fn found(&self, place: usize, server: &Identity, now: Moment) -> Result<(), Fault> {
        let (all, mut state) = (self.addrs.len(), self.state());
        // This is not the server that was here before, which may have moved.
        let before = state.found[place].take();
        for other in state.found.iter().flatten() {
            if other.run_id == server.run_id {
                return Err(refused(LISTED_TWICE));
            }
            if other.id == server.id {
                return Err(refused(A_COPY));
            }
        }
        let list = match &server.list {
            None => None,
            Some(text) => Some(read(text, all)?),
        };
        let is_deleted = list.is_none() && state.had[place].as_ref() == Some(&server.id);
        let since = &mut state.deleted[place];
        *since = is_deleted.then(|| since.unwrap_or(now));
        let is_held_back = since.is_some_and(|since| now < since.after(self.guard * HELD_BACK));
        let Identity { run_id, id, list: text, .. } = server;
        let (run_id, id, text) = (run_id.clone(), id.clone(), text.clone());
        let is_same = |one: &FoundServer| one.run_id == run_id && one.id == id && one.text == text;
        let since = before.filter(is_same).map_or(now, |one| one.since);
        let read = now;
        state.found[place] =
            Some(FoundServer { run_id, id, text, list, is_held_back, since, read });
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Notes that the connection to the server at a place is lost, so that its list is no longer known.
    pub(super) fn lost(&self, place: usize) {
        self.state().found[place] = None;
    }

    /// Notes the list that the server at a place keeps now.
    pub(super) fn stored(
        &self,
        place: usize,
        text: Option<String>,
        now: Moment,
    ) -> Result<(), Fault> {
        let list = match &text {
            None => None,
            Some(text) => Some(read(text, self.addrs.len())?),
        };
        if let Some(found) = &mut self.state().found[place] {
            (found.text, found.list, found.since, found.read) = (text, list, now, now);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns the next step for the server at a place. `patient`: before a first list is made, wait for
    /// servers that were not found yet.
    pub(super) fn seated(&self, place: usize, patient: bool) -> Result<SeatStep, Fault> {
        let mut state = self.state();
        let mut seated = state.seated(place, &self.addrs, patient);
        // The answer may have changed the list that most servers keep.
        if seated.is_err() && state.is_behind(place) {
            seated = Ok(SeatStep::Wait);
        }
        let list = state.target();
        if list != state.list {
            state.list = list;
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        Ok(match seated? {
            SeatStep::Member(_) => SeatStep::Member(self.number()),
            other => other,
        })
    }

    fn state(&self) -> MutexGuard<'_, MembersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MembersState {
    /// Returns the list that most of its servers keep; of several, the latest.
    fn kept(&self) -> Option<&ServerList> {
        let kept = || self.found.iter().flatten().filter_map(FoundServer::own);
        let by = |list: &&ServerList| {
            (kept().filter(|other| other.is(list)).count(), list.version, list.ids().concat())
        };
        kept().max_by_key(by)
    }

    /// Whether another server was read last before the server at this place was found.
    fn is_behind(&self, place: usize) -> bool {
        let Some(found) = &self.found[place] else { return false };
        self.found.iter().flatten().any(|other| other.read < found.since)
    }

    /// Returns the list that all servers should keep.
    fn target(&self) -> Option<ServerList> {
        let kept = self.kept();
        match &self.next {
            Some((before, next)) if same(before.as_ref(), kept) => Some(next.clone()),
            _ => kept.cloned(),
        }
    }

    fn seated(&mut self, place: usize, addrs: &[String], patient: bool) -> Result<SeatStep, Fault> {
        let Some(list) = self.target() else { return self.first_list(place, addrs, patient) };
        let is_rival = |one: &FoundServer| {
            let Some(own) = one.own().filter(|_| list.has(&one.id)) else { return false };
            let related = own.version > 1 && own.shares(&list) >= majority(addrs.len());
            own.version >= list.version && !own.is(&list) && !own.fits(&list) && !related
        };
        if self.found.iter().flatten().any(is_rival) {
            // Neither counts, because each of the two lists may have a majority.
            return Err(refused(AT_ODDS));
        }
        let Some(found) = &self.found[place] else { return Ok(SeatStep::Wait) };
        if !list.has(&found.id) {
            self.next = Some((self.kept().cloned(), self.with_seat(&list, place, addrs)?));
            return Ok(SeatStep::Wait);
        }
        if found.list.as_ref().is_some_and(|own| own.is(&list)) {
            self.had[place] = Some(found.id.clone());
            return Ok(SeatStep::Member(0));
        }
        // A list other than the deleted one may be written at once.
        if found.is_held_back && self.list.as_ref().is_some_and(|known| known.is(&list)) {
            return Ok(SeatStep::Wait);
        }
        let is_new = match &self.next {
            Some((Some(before), next)) => next.is(&list) && !before.has(&found.id),
            _ => false,
        };
        let has_it = |one: &&FoundServer| one.list.as_ref().is_some_and(|own| own.is(&list));
        let others = self.found.iter().flatten().filter(has_it).count();
        if is_new && others + 1 < majority(addrs.len()) {
            return Ok(SeatStep::Wait);
        }
        Ok(SeatStep::Write { before: found.text.clone(), list: list.text() })
    }

    /// Makes a list of the servers that were found, because no server keeps one.
    fn first_list(
        &mut self,
        place: usize,
        addrs: &[String],
        patient: bool,
    ) -> Result<SeatStep, Fault> {
        let Some(found) = &self.found[place] else { return Ok(SeatStep::Wait) };
        if found.list.is_some() {
            return Err(not_a_member(&addrs[place]));
        }
        let is_free = |one: &&FoundServer| one.list.is_none() && !one.is_held_back;
        let free = self.found.iter().flatten().filter(is_free).count();
        if free < if patient { addrs.len() } else { majority(addrs.len()) } {
            return Ok(SeatStep::Wait);
        }
        let seat = |(one, addr): (&Option<FoundServer>, &String)| Seat {
            id: one.as_ref().filter(is_free).map(|one| one.id.clone()),
            addr: addr.clone(),
        };
        let seats = self.found.iter().zip(addrs).map(seat).collect();
        let list = ServerList { version: 1, seats };
        let write = SeatStep::Write { before: None, list: list.text() };
        self.next = Some((None, list));
        Ok(write)
    }

    /// Returns the next list, in which the server at a place has the seat that it had before it lost its data.
    fn with_seat(
        &self,
        list: &ServerList,
        place: usize,
        addrs: &[String],
    ) -> Result<ServerList, Fault> {
        let refused = || not_a_member(&addrs[place]);
        let found = self.found[place].as_ref().ok_or_else(refused)?;
        let is_elsewhere = |id: &str| self.found.iter().flatten().any(|other| other.id == id);
        let is_its = |seat: &Seat| {
            let is_left = seat.id.as_deref().is_none_or(|id| !is_elsewhere(id));
            let had = self.had[place].is_some() && seat.id == self.had[place];
            // A server with a list of other servers has not lost its data.
            let is_clean = match &found.list {
                None => true,
                Some(own) => seat.id.is_none() && own.fits(list),
            };
            is_left && is_clean && (had || seat.addr == addrs[place])
        };
        let seat = list.seats.iter().position(is_its).ok_or_else(refused)?;
        let mut next = ServerList { version: list.version + 1, seats: list.seats.clone() };
        next.seats[seat].id = Some(found.id.clone());
        Ok(next)
    }
}

impl FoundServer {
    /// Returns the server's list, if the server is in it.
    fn own(&self) -> Option<&ServerList> {
        self.list.as_ref().filter(|list| list.has(&self.id))
    }
}

fn same(one: Option<&ServerList>, other: Option<&ServerList>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (None, None) => true,
        _ => false,
    }
}

/// Reads a list from a server's text.
fn read(text: &str, nodes: usize) -> Result<ServerList, Fault> {
    let there = text.split(' ').next().unwrap_or_default();
    let here = size(nodes);
    if there != here {
        return Err(refused(&other_size(there, &here)));
    }
    ServerList::parse(text)
        .filter(|list| list.seats.len() == nodes)
        .ok_or_else(|| refused(NOT_READABLE))
}

fn refused(why: &str) -> Fault {
    Fault::lasting(BackendKind::Other, why)
}

/// Returns the error for two processes with lists of different sizes, whose majorities need not share a node.
fn other_size(there: &str, here: &str) -> String {
    format!(
        "another process uses these servers as a quorum of {there} (nodes:majority), and this one of {here}: \
         give every process the same list; if the other one is gone for good, delete the key \
         `<prefix>:quorum` on every server"
    )
}

fn not_a_member(addr: &str) -> Fault {
    refused(&format!(
        "other processes use these servers as a quorum to which {addr} does not belong: give every process the same \
         list; if {addr} replaces a server that is stopped for good, delete the key `<prefix>:quorum` on every server"
    ))
}
