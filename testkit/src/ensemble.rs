//! Servers of one store that agree with each other under a leader.

use std::net::SocketAddr;
use std::thread;

use crate::own_server::{Ports, Program, Server};
use crate::wait_until;

/// How many there are: one may be missing.
const MEMBERS: usize = 3;

/// A server that can be one of several.
pub trait Member: Program {
    /// The one of that number, of which all listen at these ports.
    fn of(number: usize, ports: &[Ports]) -> Self;

    /// Whether the others follow it, as far as it knows.
    fn leads(server: &Server<Self>) -> bool;
}

/// What became of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Stands,
    Killed,
}

/// Three real servers that elect a leader.
pub struct Ensemble<P: Member> {
    members: Vec<(Server<P>, State)>,
}

impl<P: Member> Ensemble<P> {
    /// Starts them; returns when they have a leader.
    pub fn start() -> Self {
        let ports: Vec<_> = (0..MEMBERS).map(|_| Ports::free()).collect();
        // Each answers once others are there.
        let members = thread::scope(|scope| {
            let start = |number: usize| {
                let ports = &ports;
                scope.spawn(move || Server::start_member(P::of(number, ports), ports[number]))
            };
            let starting: Vec<_> = (0..MEMBERS).map(start).collect();
            let started = starting.into_iter().map(|one| one.join().expect("it starts"));
            started.map(|server| (server, State::Runs)).collect()
        });
        let ensemble = Self { members };
        ensemble.leader();
        ensemble
    }

    /// The URL that names them all.
    pub fn url(&self) -> String {
        self.url_at(&self.addrs())
    }

    /// Where they listen.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|(server, _)| server.addr()).collect()
    }

    /// The URL that names them as seen through other addresses, for example those of [proxies](crate::Proxy).
    pub fn url_at(&self, addrs: &[SocketAddr]) -> String {
        let mut url = P::url_at(addrs[0]);
        for addr in &addrs[1..] {
            url.push_str(&format!(",{addr}"));
        }
        url
    }

    /// The number of the one that leads those that run, once there is one.
    pub fn leader(&self) -> usize {
        let leads =
            |(server, state): &(Server<P>, State)| *state == State::Runs && P::leads(server);
        wait_until("one leads", || self.members.iter().filter(|one| leads(one)).count() == 1);
        self.members.iter().position(leads).unwrap_or_else(|| self.leader())
    }

    /// SIGKILL to one of them.
    pub fn kill9(&mut self, number: usize) {
        self.members[number].0.kill9();
        self.members[number].1 = State::Killed;
    }

    /// SIGSTOP to one of them: its connections stay open, and it answers nothing.
    pub fn stop(&mut self, number: usize) {
        self.members[number].0.stop();
        self.members[number].1 = State::Stands;
    }

    /// Has one of them go on, or starts it again with its data. It may have to wait for others before it answers.
    pub fn revive(&mut self, number: usize) {
        let (server, state) = &mut self.members[number];
        match std::mem::replace(state, State::Runs) {
            State::Runs => {}
            State::Stands => server.cont(),
            State::Killed => server.restart(),
        }
    }

    /// What is stored of locks, their holders and their waiters, as one of those that run knows it.
    pub fn left(&self) -> Vec<String> {
        let runs = self.members.iter().find(|(_, state)| *state == State::Runs);
        P::left(&runs.expect("one that runs").0)
    }
}
