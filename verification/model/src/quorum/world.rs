//! Servers, processes and what is between them; what can happen, and what must be true.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::client::{Client, Sent, Turn};
use super::node::{Node, Reply};
use super::search::Space;
use super::{Faults, Rules};
use crate::network::{Hint, HintKind};
use crate::token::Token;

/// What must be true.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invariant {
    /// No two bodies run at once.
    Exclusion,
    /// Each body has a larger fencing token than all before it.
    Fencing,
    /// A free lock is taken by a waiter, within the bound.
    Progress,
    /// Nothing stays at a node in the name of a token that its process does not know, past the bound.
    GivenBack,
}

impl Invariant {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "Q1 exclusion",
            Self::Fencing => "Q2 fencing",
            Self::Progress => "Q3 progress",
            Self::GivenBack => "Q4 given back",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    rules: Rc<Rules>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    tick: u32,
    faults: Faults,
    /// The largest fencing token of a body.
    highest: u64,
    /// How many bodies have started; not part of the fingerprint.
    bodies: u64,
    /// For how many ticks the lock has had no holder although there is a waiter.
    idle: u8,
    /// Tokens at nodes that their processes do not know, and for how many ticks.
    stray: Vec<(u8, Token, u8)>,
    broken: Option<Invariant>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { nodes, clients, tick, faults, highest, idle, stray, broken, .. } = self;
        (nodes, clients, tick).hash(state);
        (faults, highest, idle, stray, broken).hash(state);
    }
}

/// What happens next. Clients and nodes are named by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Call {
        client: u8,
    },
    /// A node runs the next command of a client.
    Run {
        client: u8,
        node: u8,
    },
    /// The next answer arrives.
    Answer {
        client: u8,
        node: u8,
    },
    /// The next message arrives.
    Hear {
        client: u8,
        node: u8,
    },
    /// A body ends.
    Finish {
        client: u8,
    },
    /// A second caller of the process depends on the try (R2).
    Join {
        client: u8,
    },
    /// The nodes that are slower than a majority are not waited for.
    Grace {
        client: u8,
    },
    /// With a mutant: what was decided earlier is sent.
    Offer {
        client: u8,
    },
    /// The process does not want the lock any more.
    Cancel {
        client: u8,
    },
    /// An answer is not waited for.
    TimeOut {
        client: u8,
        node: u8,
    },
    /// A connection is lost, with what it carries or before some of that runs.
    Lose {
        client: u8,
        node: u8,
        lingers: bool,
    },
    LoseHint {
        client: u8,
        node: u8,
    },
    /// A node runs a command of a dead connection.
    RunStale {
        client: u8,
        node: u8,
    },
    /// A process dies. The servers notice, or go on taking it for a subscriber.
    Die {
        client: u8,
        unnoticed: bool,
    },
    /// A node starts again, and has forgotten everything.
    Restart {
        node: u8,
    },
    Tick,
}

impl World {
    pub(super) fn new(rules: &Rc<Rules>) -> Self {
        let clients = (0..rules.clients).map(|id| Client::new(rules, id)).collect();
        Self {
            rules: rules.clone(),
            nodes: vec![Node::new(); rules.nodes],
            clients,
            tick: 0,
            faults: rules.faults,
            highest: 0,
            bodies: 0,
            idle: 0,
            stray: Vec::new(),
            broken: None,
        }
    }

    fn turn(&mut self, client: u8, act: impl FnOnce(&mut Turn<'_>)) {
        let rules = self.rules.clone();
        let (client, tick) = (&mut self.clients[usize::from(client)], self.tick);
        let mut turn = Turn { rules: &rules, client, tick, started: None };
        act(&mut turn);
        if let Some(fence) = turn.started {
            if fence <= self.highest {
                self.broken = Some(Invariant::Fencing);
            }
            self.highest = self.highest.max(fence);
            (self.idle, self.bodies) = (0, self.bodies + 1);
        }
    }

    /// The node runs a command, and its messages are on their way.
    fn run(&mut self, node: u8, sent: Sent) -> Reply {
        let subscribed = self.clients.iter().filter(|client| client.subscribed);
        let listening: Vec<_> = subscribed.map(|client| client.id).collect();
        let rules = self.rules.clone();
        let own = &mut self.nodes[usize::from(node)];
        let (reply, hints) = own.run(&rules, &listening, sent.command);
        for hint in hints {
            let client = self.clients.iter_mut().find(|client| client.id == hint.token.process);
            if let Some(client) = client.filter(|client| client.alive) {
                let hints = &mut client.links[usize::from(node)].hints;
                if !hints.contains(&hint) {
                    hints.push_back(hint);
                }
            }
        }
        reply
    }

    fn next_command(&mut self, client: u8, node: u8) {
        let link = &mut self.clients[usize::from(client)].links[usize::from(node)];
        let Some(sent) = link.requests.pop_front() else { return };
        let reply = self.run(node, sent);
        if self.rules.prompt {
            self.turn(client, |turn| turn.on_answer(node.into(), sent, Some(reply)));
        } else {
            let link = &mut self.clients[usize::from(client)].links[usize::from(node)];
            link.answers.push_back((sent, reply));
        }
    }

    fn next_answer(&mut self, client: u8, node: u8) {
        let link = &mut self.clients[usize::from(client)].links[usize::from(node)];
        if let Some((sent, reply)) = link.answers.pop_front() {
            self.turn(client, |turn| turn.on_answer(node.into(), sent, Some(reply)));
        }
    }

    fn next_hint(&mut self, client: u8, node: u8) -> Option<Hint> {
        self.clients[usize::from(client)].links[usize::from(node)].hints.pop_front()
    }

    fn lose(&mut self, client: u8, node: u8, lingers: bool) {
        let Node { start, watched, .. } = self.nodes[usize::from(node)];
        let is = (start, watched);
        self.turn(client, |turn| turn.reconnect(node.into(), lingers, is));
    }

    fn die(&mut self, client: u8, unnoticed: bool) {
        let client = &mut self.clients[usize::from(client)];
        (client.alive, client.subscribed) = (false, unnoticed);
        (client.call, client.calls) = (None, 0);
        client.releases.clear();
        for link in &mut client.links {
            let requests = std::mem::take(&mut link.requests);
            link.stale.extend(requests);
            link.answers.clear();
            link.hints.clear();
        }
    }

    fn restart(&mut self, node: u8) {
        self.nodes[usize::from(node)].restart();
        for client in 0..self.clients.len() as u8 {
            self.clients[usize::from(client)].links[usize::from(node)].stale.clear();
            self.lose(client, node, false);
        }
    }

    fn tick(&mut self) {
        self.measure();
        self.tick += 1;
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.server.tick(super::TICK);
            let mut alive = self.clients.iter().filter(|client| client.alive);
            node.watched |= alive.any(|client| client.links[at].has_watched(node.start, self.tick));
        }
        for client in 0..self.clients.len() as u8 {
            self.turn(client, |turn| turn.tick());
        }
    }

    pub(super) fn bodies_so_far(&self) -> u64 {
        self.bodies
    }

    fn bodies(&self) -> usize {
        self.clients.iter().filter(|client| client.body(self.tick).is_some()).count()
    }

    /// The living process that issued a token.
    fn process_of(&self, token: Token) -> Option<&Client> {
        self.clients.iter().find(|client| client.id == token.process && client.alive)
    }

    fn measure(&mut self) {
        // A process that has died with the lock, or with votes, is waited for.
        let held = self.nodes.iter().flat_map(|node| node.key().lock.live());
        let dead = held.filter(|holder| self.process_of(holder.token).is_none()).count();
        let waits = self.clients.iter().any(Client::waits);
        let idle = waits && self.bodies() == 0 && dead == 0;
        self.idle = if idle { self.idle.saturating_add(1).min(self.rules.idle + 1) } else { 0 };
        if self.idle > self.rules.idle {
            self.broken = Some(Invariant::Progress);
        }
        let before = std::mem::take(&mut self.stray);
        for (at, node) in (0..).zip(&self.nodes) {
            let held = node.key().lock.live().map(|holder| holder.token);
            let queued = node.key().queue.iter().map(|entry| entry.token);
            for token in held.chain(queued) {
                if self.process_of(token).is_some_and(|process| !process.knows(token)) {
                    let ticks = before.iter().find(|other| (other.0, other.1) == (at, token));
                    self.stray.push((at, token, ticks.map_or(1, |other| other.2 + 1)));
                }
            }
        }
        if self.stray.iter().any(|(_, _, ticks)| *ticks > self.rules.stray) {
            self.broken = Some(Invariant::GivenBack);
        }
    }

    /// A fault that there is still room for; whether there is.
    fn fault(&mut self, step: Step) {
        if self.rules.endless {
            return;
        }
        let faults = &mut self.faults;
        let left = match step {
            Step::Join { .. } => &mut faults.joins,
            Step::Grace { .. } => &mut faults.graces,
            Step::Cancel { .. } => &mut faults.cancels,
            Step::TimeOut { .. } => &mut faults.timeouts,
            Step::Lose { .. } => &mut faults.disconnects,
            Step::LoseHint { .. } => &mut faults.lost_hints,
            Step::Die { .. } => &mut faults.deaths,
            Step::Restart { .. } => &mut faults.restarts,
            _ => return,
        };
        *left -= 1;
    }

    fn on_links(&self, steps: &mut Vec<Step>, client: u8) {
        let own = &self.clients[usize::from(client)];
        let Faults { timeouts, disconnects, lost_hints, .. } = self.faults;
        for (node, link) in (0..).zip(&own.links) {
            if !link.requests.is_empty() {
                steps.push(Step::Run { client, node });
            }
            if !link.answers.is_empty() {
                steps.push(Step::Answer { client, node });
            }
            if let Some(hint) = link.hints.front() {
                steps.push(Step::Hear { client, node });
                if lost_hints > 0 && hint.kind == HintKind::Grant {
                    steps.push(Step::LoseHint { client, node });
                }
            }
            if !link.stale.is_empty() {
                steps.push(Step::RunStale { client, node });
            }
            if timeouts > 0 && link.requests.front().is_some_and(Sent::is_awaited) {
                steps.push(Step::TimeOut { client, node });
            }
            let carries = !link.requests.is_empty() || !link.answers.is_empty();
            if disconnects > 0 && carries && own.alive {
                steps.push(Step::Lose { client, node, lingers: false });
                if !link.requests.is_empty() {
                    steps.push(Step::Lose { client, node, lingers: true });
                }
            }
        }
    }

    fn in_client(&self, steps: &mut Vec<Step>, client: u8) {
        let own = &self.clients[usize::from(client)];
        let Faults { joins, graces, cancels, deaths, .. } = self.faults;
        if !own.alive {
            return;
        }
        match &own.call {
            None if own.calls > 0 => steps.push(Step::Call { client }),
            None => {}
            Some(call) => {
                if call.body.is_some() {
                    steps.push(Step::Finish { client });
                } else if cancels > 0 {
                    steps.push(Step::Cancel { client });
                }
                if call.offers {
                    steps.push(Step::Offer { client });
                }
                if joins > 0 && call.may_be_joined() {
                    steps.push(Step::Join { client });
                }
                if graces > 0 && call.may_hurry() {
                    steps.push(Step::Grace { client });
                }
            }
        }
        if deaths > 0 && (own.call.is_some() || !own.releases.is_empty()) {
            steps.push(Step::Die { client, unnoticed: false });
            steps.push(Step::Die { client, unnoticed: true });
        }
    }
}

impl Space for World {
    type Step = Step;
    type Broken = Invariant;

    fn possible(&self, steps: &mut Vec<Step>) {
        for client in 0..self.clients.len() as u8 {
            self.on_links(steps, client);
            self.in_client(steps, client);
        }
        if self.faults.restarts > 0 {
            steps.extend((0..self.nodes.len() as u8).map(|node| Step::Restart { node }));
        }
        let quiet = self.clients.iter().all(|client| client.is_quiet(self.rules.lag));
        if quiet && self.tick < self.rules.ticks {
            steps.push(Step::Tick);
        }
    }

    fn apply(&mut self, step: Step) {
        self.fault(step);
        match step {
            Step::Call { client } => self.turn(client, |turn| turn.call()),
            Step::Run { client, node } => self.next_command(client, node),
            Step::Answer { client, node } => self.next_answer(client, node),
            Step::Hear { client, node } => {
                let hint = self.next_hint(client, node);
                self.turn(client, |turn| hint.into_iter().for_each(|hint| turn.on_hint(hint)));
            }
            Step::Finish { client } | Step::Cancel { client } => {
                self.turn(client, |turn| turn.end())
            }
            Step::Join { client } => self.turn(client, |turn| turn.enter()),
            Step::Grace { client } => self.turn(client, |turn| turn.hurry()),
            Step::Offer { client } => self.turn(client, |turn| turn.offer_all()),
            Step::TimeOut { client, node } => self.turn(client, |turn| turn.time_out(node.into())),
            Step::Lose { client, node, lingers } => self.lose(client, node, lingers),
            Step::LoseHint { client, node } => {
                self.next_hint(client, node);
            }
            Step::RunStale { client, node } => {
                let link = &mut self.clients[usize::from(client)].links[usize::from(node)];
                let sent = link.stale.pop_front();
                sent.into_iter().for_each(|sent| {
                    self.run(node, sent);
                });
            }
            Step::Die { client, unnoticed } => self.die(client, unnoticed),
            Step::Restart { node } => self.restart(node),
            Step::Tick => self.tick(),
        }
        if self.bodies() > 1 {
            self.broken = Some(Invariant::Exclusion);
        }
        if self.rules.endless && Self::is_wrong(step) {
            (self.idle, self.stray) = (0, Vec::new());
        }
    }

    fn broken(&self) -> Option<Invariant> {
        self.broken
    }

    fn weight(step: Step, storm: bool) -> u64 {
        let wrong = u64::from(storm);
        match step {
            Step::Run { .. } | Step::Answer { .. } | Step::Hear { .. } => 40,
            Step::Call { .. } => 10,
            Step::Finish { .. } => 20,
            Step::Tick => 30,
            Step::RunStale { .. } => 8,
            Step::Join { .. } | Step::Grace { .. } => 3 * wrong,
            Step::Die { .. } | Step::Restart { .. } => wrong,
            _ => 2 * wrong,
        }
    }
}

impl World {
    fn is_wrong(step: Step) -> bool {
        let well = matches!(
            step,
            Step::Call { .. }
                | Step::Run { .. }
                | Step::Answer { .. }
                | Step::Hear { .. }
                | Step::Finish { .. }
                | Step::Tick
        );
        !well
    }

    /// What matters most of it, in a few lines.
    pub(super) fn brief(&self) -> String {
        let mut text = format!("    tick {}\n", self.tick);
        for (at, node) in self.nodes.iter().enumerate() {
            let held: Vec<_> =
                node.key().lock.holders.iter().map(|holder| (holder.token, holder.ttl)).collect();
            let queue: Vec<_> =
                node.key().queue.iter().map(|entry| (entry.ticket, entry.token)).collect();
            text.push_str(&format!(
                "    node {at}: {held:?} queue {queue:?} watched {}\n",
                node.watched
            ));
        }
        for client in &self.clients {
            text.push_str(&client.brief());
        }
        text
    }
}
