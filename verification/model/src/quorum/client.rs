//! A process that wants the lock: it sends, and leaves to the product what answers come to.

use std::collections::VecDeque;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::line::{Entered, Limit, Owned};
use distlock_core::redlock::{
    Accepted, Answered, Ballot, Drawn, RestartGuard, Stands, Tally, Tried, Verdict, Votes,
    accepted, proposal,
};

use super::node::{Command, Reply};
use super::{Mutant, Rules};
use crate::network::{Hint, HintKind};
use crate::server::Acquired;
use crate::token::Token;

/// How often a fencing token is proposed that others have gone beyond.
const TRIES: u8 = 5;

/// The round of an answer that is no longer waited for.
const UNAWAITED: u8 = u8::MAX;

/// A tick as a moment.
pub(super) fn at(tick: u32) -> Moment {
    Moment::from_nanos(0).after(Duration::from_secs(1_000 + u64::from(tick)))
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Client {
    pub(super) id: u16,
    pub(super) alive: bool,
    /// The servers take it for a subscriber.
    pub(super) subscribed: bool,
    /// The largest fencing token or ticket that it has seen.
    seen: u64,
    pub(super) links: Vec<Link>,
    /// Calls that it may still make.
    pub(super) calls: u8,
    /// Tokens that it has used.
    tokens: u32,
    pub(super) call: Option<Call>,
    /// Tokens that are released until every node has confirmed it.
    pub(super) releases: Vec<Release>,
}

/// What is between it and a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Link {
    guard: RestartGuard,
    pub(super) requests: VecDeque<Sent>,
    pub(super) answers: VecDeque<(Sent, Reply)>,
    pub(super) hints: VecDeque<Hint>,
    /// Commands on dead connections, which the node may still run.
    pub(super) stale: VecDeque<Sent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sent {
    pub(super) command: Command,
    /// Of which question of the call it is a part.
    round: u8,
    pub(super) tick: u32,
    pub(super) age: u8,
}

/// A question to several nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Round {
    number: u8,
    votes: Votes,
    tally: Tally,
}

/// One call, from its first command to the end of its body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Call {
    pub(super) token: Token,
    /// 0 before it stood in a queue.
    ticket: u64,
    pub(super) proposal: u64,
    rounds: u8,
    pub(super) trying: Option<Round>,
    pub(super) entering: Option<Round>,
    pub(super) drawing: Option<Drawing>,
    pub(super) body: Option<Body>,
    pub(super) renewing: Option<Round>,
    /// Its votes may be offered: it was counted, and has no majority.
    counted: bool,
    /// It has stood in most queues.
    stands: bool,
    /// It was called while its votes were counted.
    hinted: bool,
    look_at: Option<u32>,
    /// With a mutant: it is decided that its votes are offered, and nothing is sent yet.
    pub(super) offers: bool,
    parts: Vec<Part>,
}

/// A token at one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Part {
    sent: bool,
    /// Offers without an answer.
    returns: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Drawing {
    pub(super) round: Round,
    granted: Vec<usize>,
    sent: Moment,
    proposal: u64,
    tries: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Body {
    pub(super) fence: u64,
    pub(super) deadline: Moment,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Release {
    pub(super) token: Token,
    /// Per node: what is left to do.
    left: Vec<Left>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Left {
    Nothing,
    Answer,
    /// In so many ticks once more.
    Again(u8),
}

impl Round {
    fn new(number: u8, nodes: usize, asked: impl Iterator<Item = usize>) -> Self {
        Self { number, votes: Votes::of(nodes, asked), tally: Tally::default() }
    }

    fn is_over(&self, grace: bool) -> bool {
        self.votes.verdict() != Verdict::Open || grace && self.votes.has_quorum()
    }
}

impl Sent {
    /// Its answer is waited for, which may be given up.
    pub(super) fn is_awaited(&self) -> bool {
        let asks = !matches!(self.command, Command::Offer { .. } | Command::Release { .. });
        asks && self.round != UNAWAITED
    }
}

impl Link {
    fn new(rules: &Rules) -> Self {
        let mut guard = RestartGuard::default();
        // Others have watched it before.
        guard.greeted("0", true, rules.guard(), at(0));
        let (requests, answers, hints, stale) = Default::default();
        Self { guard, requests, answers, hints, stale }
    }

    pub(super) fn greeted(&mut self, rules: &Rules, start: u32, watched: bool, tick: u32) {
        self.guard.greeted(&start.to_string(), watched, rules.guard(), at(tick));
    }

    /// It has watched this start of the node for long enough to say so there.
    pub(super) fn has_watched(&self, start: u32, tick: u32) -> bool {
        self.guard.has_watched(&start.to_string(), at(tick))
    }

    fn is_quiet(&self, lag: u8) -> bool {
        let late = |sent: &Sent| sent.age >= lag;
        let hears = self.hints.is_empty() || lag > 0;
        hears && !self.requests.iter().chain(self.answers.iter().map(|(sent, _)| sent)).any(late)
    }
}

impl Client {
    pub(super) fn new(rules: &Rules, id: u16) -> Self {
        let links = (0..rules.nodes).map(|_| Link::new(rules)).collect();
        let (call, releases) = Default::default();
        let (alive, subscribed, seen, tokens, calls) = (true, true, 0, 0, rules.calls);
        Self { id, alive, subscribed, seen, links, calls, tokens, call, releases }
    }

    pub(super) fn is_quiet(&self, lag: u8) -> bool {
        let decided = self.call.as_ref().is_some_and(|call| call.offers);
        !self.alive || !decided && self.links.iter().all(|link| link.is_quiet(lag))
    }

    /// Its body, as long as it may run.
    pub(super) fn body(&self, tick: u32) -> Option<Body> {
        let body = self.call.as_ref().filter(|_| self.alive)?.body?;
        (at(tick) < body.deadline).then_some(body)
    }

    pub(super) fn waits(&self) -> bool {
        self.alive && self.call.as_ref().is_some_and(|call| call.body.is_none())
    }

    /// It knows of this token, or something of it is on its way.
    pub(super) fn knows(&self, token: Token) -> bool {
        let calls = self.call.as_ref().is_some_and(|call| call.token == token);
        let mut sent = self.links.iter().flat_map(|link| link.requests.iter().chain(&link.stale));
        calls
            || self.releases.iter().any(|release| release.token == token)
            || sent.any(|sent| sent.command.creates() == Some(token))
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        let (process, seq) = (self.id, self.tokens);
        Token { process, seq, claim: 1_000, deaf: false, limit: Limit::ALONE }
    }
}

impl Call {
    /// Another caller of its process may depend on its try.
    pub(super) fn may_be_joined(&self) -> bool {
        self.trying.is_some() && self.ticket == 0
    }

    /// A majority has answered a question, and others are slow.
    pub(super) fn may_hurry(&self) -> bool {
        let drawing = self.drawing.as_ref().map(|drawing| &drawing.round);
        let rounds = [self.trying.as_ref(), self.entering.as_ref(), drawing];
        rounds.into_iter().flatten().any(|round| round.votes.has_quorum())
    }
}

impl Client {
    /// In a few lines, for traces.
    pub(super) fn brief(&self) -> String {
        let Self { id, alive, call, releases, links, .. } = self;
        let mut text =
            format!("    P{id} alive {alive} releases {releases:?}\n      call {call:?}\n");
        for (node, link) in links.iter().enumerate() {
            let Link { requests, answers, hints, stale, .. } = link;
            let commands =
                |list: &VecDeque<Sent>| list.iter().map(|sent| sent.command).collect::<Vec<_>>();
            let (requests, stale) = (commands(requests), commands(stale));
            let answers: Vec<_> = answers.iter().map(|(_, reply)| reply).collect();
            if !requests.is_empty() || !answers.is_empty() || !hints.is_empty() || !stale.is_empty()
            {
                text.push_str(&format!(
                    "      to {node}: {requests:?} answers {answers:?} hints {hints:?} stale {stale:?}\n"
                ));
            }
        }
        text
    }
}

/// What happens to a client in a tick.
pub(super) struct Turn<'a> {
    pub(super) rules: &'a Rules,
    pub(super) client: &'a mut Client,
    pub(super) tick: u32,
    /// A body has started.
    pub(super) started: Option<u64>,
}

impl Turn<'_> {
    fn nodes(&self) -> usize {
        self.rules.nodes
    }

    fn propose(&mut self) -> u64 {
        let time = self.rules.clock(self.client.id, self.tick);
        let proposal = proposal(self.client.seen, time);
        self.client.seen = proposal;
        proposal
    }

    fn send(&mut self, node: usize, command: Command, round: u8) {
        if let (Some(call), Some(token)) = (&mut self.client.call, command.creates())
            && call.token == token
        {
            call.parts[node].sent = true;
        }
        let sent = Sent { command, round, tick: self.tick, age: 0 };
        self.client.links[node].requests.push_back(sent);
    }

    fn round(&mut self, asked: &[usize]) -> Option<Round> {
        let nodes = self.nodes();
        let call = self.client.call.as_mut()?;
        // Answers to the last few questions can be distinguished.
        call.rounds = (call.rounds + 1) % 16;
        Some(Round::new(call.rounds, nodes, asked.iter().copied()))
    }

    fn all(&self) -> Vec<usize> {
        (0..self.nodes()).collect()
    }

    fn call_mut(&mut self) -> Option<&mut Call> {
        self.client.call.as_mut()
    }

    pub(super) fn call(&mut self) {
        self.client.calls = self.client.calls.saturating_sub(u8::from(!self.rules.endless));
        self.begin(0);
        if !self.rules.tries {
            return self.enter();
        }
        let proposal = self.propose();
        let Some(round) = self.round(&self.all()) else { return };
        let number = round.number;
        let Some(call) = self.call_mut() else { return };
        (call.trying, call.proposal) = (Some(round), proposal);
        let token = call.token;
        for node in self.all() {
            self.send(node, Command::Vote { token, proposal }, number);
        }
    }

    fn begin(&mut self, ticket: u64) {
        let token = self.client.token();
        let parts = vec![Part::default(); self.nodes()];
        self.client.call = Some(Call {
            token,
            ticket,
            proposal: 0,
            rounds: 0,
            trying: None,
            entering: None,
            drawing: None,
            body: None,
            renewing: None,
            counted: false,
            stands: false,
            hinted: false,
            look_at: None,
            offers: false,
            parts,
        });
    }

    /// Sends the token to every queue.
    pub(super) fn enter(&mut self) {
        let Some(call) = self.call_mut() else { return };
        if call.entering.is_some() || call.drawing.is_some() || call.body.is_some() {
            return;
        }
        let ticket = match call.ticket {
            0 => self.propose(),
            ticket => ticket,
        };
        let Some(round) = self.round(&self.all()) else { return };
        let number = round.number;
        let Some(call) = self.call_mut() else { return };
        let token = call.token;
        (call.ticket, call.entering, call.look_at) = (ticket, Some(round), None);
        (call.counted, call.hinted) = (false, false);
        for node in self.all() {
            self.send(node, Command::Enter { token, ticket }, number);
        }
    }

    /// An answer, or that there will be none.
    pub(super) fn on_answer(&mut self, node: usize, sent: Sent, reply: Option<Reply>) {
        let counts = self.client.links[node].guard.counts(at(sent.tick));
        let asked = at(sent.tick);
        match sent.command {
            Command::Vote { token, .. } => {
                let answer = match reply {
                    Some(Reply::Voted { taken, accepted }) => {
                        if taken.is_none() {
                            self.saw(accepted);
                        }
                        Some((taken.map_or(Ok(()), |left| Err(Some(millis(left)))), accepted))
                    }
                    _ => None,
                };
                let Some(round) = self.round_of(token, |call| call.trying.as_mut(), sent) else {
                    return;
                };
                let ballot = match answer {
                    Some((given, accepted)) => round.tally.tried(asked, given, accepted, counts),
                    None => Ballot::Unknown,
                };
                round.votes.add(node, ballot);
                self.tried(false);
            }
            Command::Enter { token, ticket } => {
                let steady = self.is_steady(node);
                let Some(round) = self.round_of(token, |call| call.entering.as_mut(), sent) else {
                    return;
                };
                let ballot = match reply {
                    Some(Reply::Entered(answer)) => {
                        let answered = Answered { counts, steady };
                        round.tally.entered(entered(answer, asked, ticket), answered)
                    }
                    _ => Ballot::Unknown,
                };
                round.votes.add(node, ballot);
                self.entered(false);
            }
            Command::Propose { .. } => self.on_accepted(node, sent, reply, counts),
            Command::Renew { token } => {
                let steady = self.is_steady(node);
                let Some(round) = self.round_of(token, |call| call.renewing.as_mut(), sent) else {
                    return;
                };
                let ballot = match reply {
                    Some(Reply::Renewed(owned)) => {
                        let owned = match owned {
                            Some(contended) => Owned::Yes { contended, fence: None },
                            None => Owned::No,
                        };
                        round.tally.renewed(asked, owned, Answered { counts, steady })
                    }
                    _ => Ballot::Unknown,
                };
                round.votes.add(node, ballot);
                self.renewed();
            }
            Command::Offer { token, .. } => {
                // Unanswered it may still run.
                let call = self.client.call.as_mut().filter(|call| call.token == token);
                if let (Some(call), Some(_)) = (call, reply) {
                    call.parts[node].returns -= 1;
                }
            }
            Command::Release { token } => self.released(node, token, reply.is_some()),
            Command::Fill { .. } => {}
        }
    }

    fn on_accepted(&mut self, node: usize, sent: Sent, reply: Option<Reply>, counts: bool) {
        let said = match reply {
            Some(Reply::Accepted(said)) => {
                self.saw(said);
                Some(said)
            }
            _ => None,
        };
        let call = self.client.call.as_mut();
        let drawing = call.and_then(|call| call.drawing.as_mut());
        let Some(drawing) = drawing.filter(|drawing| drawing.round.number == sent.round) else {
            return;
        };
        let ballot = said.map_or(Ballot::Unknown, |said| accepted(at(sent.tick), said, counts));
        drawing.round.votes.add(node, ballot);
        self.drawn(false);
    }

    fn saw(&mut self, accepted: Accepted) {
        if let Accepted::Above(other) = accepted {
            self.client.seen = self.client.seen.max(other);
        }
    }

    fn is_steady(&self, node: usize) -> bool {
        self.client.call.as_ref().is_some_and(|call| call.parts[node].returns == 0)
    }

    fn round_of<'a>(
        &'a mut self,
        token: Token,
        of: impl FnOnce(&'a mut Call) -> Option<&'a mut Round>,
        sent: Sent,
    ) -> Option<&'a mut Round> {
        let call = self.client.call.as_mut().filter(|call| call.token == token)?;
        of(call).filter(|round| round.number == sent.round)
    }

    /// Those that are slow are not waited for.
    pub(super) fn hurry(&mut self) {
        self.tried(true);
        self.entered(true);
        self.drawn(true);
    }

    /// R2: what a try comes to, unless the engine has sent its token since.
    pub(super) fn tried(&mut self, grace: bool) {
        let Some(call) = self.call_mut() else { return };
        let Some(round) = call.trying.take_if(|round| round.is_over(grace)) else { return };
        if call.ticket != 0 {
            return;
        }
        let proposal = call.proposal;
        match Tried::of(&round.votes, &round.tally) {
            Tried::Won { sent, accepted: true } => self.granted(proposal, sent),
            Tried::Won { sent, accepted: false } => {
                let granted = round.votes.granted().collect();
                self.draw(granted, sent, 1);
            }
            Tried::Taken { .. } | Tried::Unknown => self.enter(),
        }
    }

    pub(super) fn entered(&mut self, grace: bool) {
        let tick = self.tick;
        let Some(call) = self.call_mut() else { return };
        let Some(round) = call.entering.take_if(|round| round.is_over(grace)) else { return };
        match Stands::of(&round.votes, &round.tally) {
            Stands::Won { sent, .. } => {
                let granted = round.votes.granted().collect();
                self.draw(granted, sent, 1);
            }
            // R12: another token from the old place.
            Stands::Queued { added: true, .. } if std::mem::replace(&mut call.stands, true) => {
                self.exchange();
            }
            Stands::Queued { remaining, .. } => {
                let left = remaining.map_or(1, |left| left.as_secs() as u32);
                call.look_at = Some(tick + left.clamp(1, 5));
                call.counted = true;
                let hinted = call.hinted;
                // What votes for it after this was counted is offered as well.
                self.offer(round.votes.standing().collect());
                if hinted {
                    self.enter();
                }
            }
            Stands::Unknown => {
                (call.look_at, call.counted) = (Some(tick + 1), true);
            }
        }
    }

    fn offer(&mut self, nodes: Vec<usize>) {
        let Some(call) = self.call_mut() else { return };
        let (token, ticket) = (call.token, call.ticket);
        for node in nodes {
            let Some(part) = self.call_mut().map(|call| &mut call.parts[node]) else { return };
            if part.sent {
                part.returns += 1;
                self.send(node, Command::Offer { token, ticket }, 0);
            }
        }
    }

    pub(super) fn offer_all(&mut self) {
        if let Some(call) = self.call_mut() {
            call.offers = false;
        }
        self.offer(self.all());
    }

    fn draw(&mut self, granted: Vec<usize>, sent: Moment, tries: u8) {
        let proposal = self.propose();
        let Some(round) = self.round(&granted) else { return };
        let number = round.number;
        for node in &granted {
            self.send(*node, Command::Propose { proposal }, number);
        }
        let Some(call) = self.call_mut() else { return };
        call.drawing = Some(Drawing { round, granted, sent, proposal, tries });
    }

    pub(super) fn drawn(&mut self, grace: bool) {
        let tick = self.tick;
        let Some(call) = self.call_mut() else { return };
        let over = |drawing: &mut Drawing| drawing.round.is_over(grace);
        let Some(drawing) = call.drawing.take_if(over) else { return };
        match Drawn::of(&drawing.round.votes) {
            Drawn::Accepted => self.granted(drawing.proposal, drawing.sent),
            Drawn::Beaten if drawing.tries < TRIES => {
                self.draw(drawing.granted, drawing.sent, drawing.tries + 1);
            }
            Drawn::Beaten | Drawn::Unknown => call.look_at = Some(tick + 1),
        }
    }

    fn granted(&mut self, fence: u64, sent: Moment) {
        let (ttl, now) = (self.rules.ttl(), at(self.tick));
        let deadline = sent.after(ttl);
        let Some(call) = self.call_mut() else { return };
        if now < deadline {
            call.body = Some(Body { fence, deadline });
            self.started = Some(fence);
            return;
        }
        // R3: too late.
        self.exchange();
    }

    /// Another token from the old place, and then this one is released.
    fn exchange(&mut self) {
        let Some(old) = self.client.call.take() else { return };
        self.begin(old.ticket);
        self.enter();
        self.release(old);
    }

    /// Its body ends, or it does not want the lock any more.
    pub(super) fn end(&mut self) {
        let call = self.client.call.take();
        call.into_iter().for_each(|call| self.release(call));
    }

    fn release(&mut self, call: Call) {
        let token = call.token;
        let mut left = Vec::new();
        for (node, part) in call.parts.iter().enumerate() {
            if part.sent && !(call.body.is_none() && self.rules.breaks(Mutant::NothingGivenBack)) {
                self.send(node, Command::Release { token }, 0);
                left.push(Left::Answer);
            } else {
                left.push(Left::Nothing);
            }
        }
        if left.contains(&Left::Answer) {
            self.client.releases.push(Release { token, left });
        }
    }

    fn released(&mut self, node: usize, token: Token, answered: bool) {
        // R9: bytes on a dead connection may still run.
        let stale = &self.client.links[node].stale;
        let doubt = stale.iter().any(|sent| sent.command.creates() == Some(token));
        let releases = &mut self.client.releases;
        if let Some(release) = releases.iter_mut().find(|release| release.token == token) {
            let left = if answered && !doubt { Left::Nothing } else { Left::Again(1) };
            release.left[node] = left;
        }
        releases.retain(|release| release.left.iter().any(|left| *left != Left::Nothing));
    }

    fn renewed(&mut self) {
        let ttl = self.rules.ttl();
        let Some(call) = self.call_mut() else { return };
        let Some(round) = call.renewing.take_if(|round| round.is_over(false)) else { return };
        let token = call.token;
        match round.votes.verdict() {
            Verdict::Won { sent } => {
                if let Some(body) = &mut call.body {
                    body.deadline = body.deadline.max(sent.after(ttl));
                }
                let without: Vec<_> = round.votes.refused().collect();
                for node in without {
                    self.send(node, Command::Fill { token }, 0);
                }
            }
            Verdict::Lost => self.end(),
            Verdict::Open | Verdict::Undecided => {}
        }
    }

    pub(super) fn on_hint(&mut self, hint: Hint) {
        let Some(call) = self.client.call.as_mut().filter(|call| call.token == hint.token) else {
            return;
        };
        match hint.kind {
            HintKind::Grant if call.entering.is_some() => call.hinted = true,
            HintKind::Grant if call.look_at.is_some() => self.enter(),
            HintKind::Seal if !call.counted || self.rules.breaks(Mutant::DeafToSeals) => {}
            HintKind::Seal if self.rules.breaks(Mutant::OffersLater) => call.offers = true,
            HintKind::Seal => self.offer_all(),
            _ => {}
        }
    }

    /// A connection is lost, and another one is there.
    pub(super) fn reconnect(&mut self, node: usize, lingers: bool, (start, watched): (u32, bool)) {
        let link = &mut self.client.links[node];
        let requests = std::mem::take(&mut link.requests);
        let answers = std::mem::take(&mut link.answers);
        link.hints.clear();
        if lingers {
            link.stale.extend(requests.iter().map(|sent| Sent { age: 0, ..*sent }));
        }
        if !self.client.alive {
            return;
        }
        link.greeted(self.rules, start, watched, self.tick);
        for sent in answers.into_iter().map(|(sent, _)| sent).chain(requests) {
            self.on_answer(node, sent, None);
        }
        // It may have been called meanwhile.
        if self.client.call.as_ref().is_some_and(|call| call.look_at.is_some()) {
            self.enter();
        }
    }

    /// The answer to the first question is not waited for any longer.
    pub(super) fn time_out(&mut self, node: usize) {
        let Some(first) = self.client.links[node].requests.front_mut() else { return };
        let sent = *first;
        first.round = UNAWAITED;
        self.on_answer(node, sent, None);
    }

    pub(super) fn tick(&mut self) {
        let now = at(self.tick);
        for link in &mut self.client.links {
            let under_way = link.requests.iter_mut();
            under_way.chain(link.answers.iter_mut().map(|(sent, _)| sent)).for_each(grow_old);
            link.stale.iter_mut().for_each(grow_old);
            link.stale.retain(|sent| sent.age <= self.rules.stale_life);
        }
        if !self.client.alive {
            return;
        }
        self.repeat_releases();
        let Some(call) = &mut self.client.call else { return };
        match call.body {
            Some(body) if body.deadline <= now => self.end(),
            Some(_) if self.rules.renews && call.renewing.is_none() => self.renew(),
            None if call.look_at.is_some_and(|look_at| look_at <= self.tick) => self.enter(),
            _ => {}
        }
    }

    fn renew(&mut self) {
        let Some(round) = self.round(&self.all()) else { return };
        let number = round.number;
        let Some(call) = self.call_mut() else { return };
        let token = call.token;
        call.renewing = Some(round);
        for node in self.all() {
            self.send(node, Command::Renew { token }, number);
        }
    }

    fn repeat_releases(&mut self) {
        let mut again = Vec::new();
        for release in &mut self.client.releases {
            for (node, left) in release.left.iter_mut().enumerate() {
                match left {
                    Left::Again(1) => {
                        *left = Left::Answer;
                        again.push((node, release.token));
                    }
                    Left::Again(ticks) => *ticks -= 1,
                    Left::Nothing | Left::Answer => {}
                }
            }
        }
        for (node, token) in again {
            self.send(node, Command::Release { token }, 0);
        }
    }
}

fn grow_old(sent: &mut Sent) {
    sent.age = sent.age.saturating_add(1);
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

fn entered(answer: Acquired, sent: Moment, asked: u64) -> Entered {
    match answer {
        // A quorum has fencing tokens of its own.
        Acquired::Granted { contended, .. } => Entered::Granted { fence: 0, sent, contended },
        Acquired::Queued { ticket, remaining, rank, behind, added } => {
            Entered::Queued { ticket, remaining: Some(millis(remaining)), rank, behind, added }
        }
        Acquired::Taken { remaining } => {
            let remaining = Some(millis(remaining));
            Entered::Queued { ticket: asked, remaining, rank: 0, behind: 0, added: false }
        }
        Acquired::Stale => unreachable!("nothing is sent with an end"),
    }
}
