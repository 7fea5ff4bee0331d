//! The rules for several holders at once: readers and permits.

use std::time::Duration;

use super::super::*;
use super::bench::*;
use crate::clock::Moment;
use crate::store::Term;

const READ: Limit = Limit::READ;

fn permits(n: u32) -> Limit {
    Limit::permits(n).expect("not zero")
}

fn wants(limit: Limit) -> Request {
    Request { limit, ..request(30 * SECOND) }
}

fn read() -> Request {
    wants(READ)
}

fn granted(fence: u64, now: Moment) -> Entered {
    Entered::Granted { fence, sent: now, contended: false }
}

impl Bench {
    /// Lets a reader join others.
    fn joins(&mut self, request: Request, now: Moment) -> (u32, Grant) {
        match self.arrive(request, now) {
            Arrival::Held(_, caller, grant) => (caller, grant),
            other => panic!("it cannot read with the others: {other:?}"),
        }
    }

    /// Returns the position of a holder.
    fn position(&self, caller: u32) -> Position {
        let batches = self.line.batches();
        let held = batches.flat_map(|batch| {
            let claims = batch.claims().into_iter().flat_map(Claims::iter);
            let holders = claims.flat_map(|claim| claim.holders.iter());
            holders.map(|holder| (holder.caller, holder.position(batch.number))).collect::<Vec<_>>()
        });
        held.into_iter().find(|(own, _)| *own == caller).expect("it holds the lock").1
    }

    fn leads(&mut self, request: Request, fence: u64, now: Moment) -> Position {
        let Arrival::Lead(attempt) = self.arrive(request, now) else { panic!("it does not lead") };
        self.notes.sent.push(attempt.token);
        assert!(matches!(self.tried(attempt.position, fence, now), AttemptOutcome::Held(_)));
        attempt.position
    }

    fn renewed(&mut self, ttl: Duration, now: Moment, contended: bool) -> Vec<Did> {
        let renew = Renew { token: 1, ttl, draw: false, fence: 7, deadline: at(0) };
        let yes = Ok(Owned::Yes { contended, fence: None });
        self.line.renewed(&renew, now, yes, now, &mut self.notes);
        self.notes.take()
    }
}

#[test]
fn r1_who_comes_to_readers_reads_with_them_and_the_last_one_releases() {
    let mut bench = Bench::new();
    let first = bench.leads(read(), 7, at(0));
    let (second, grant) = bench.joins(read(), at(1));
    assert_eq!(grant.fencing_token, 7 * TOKENS_PER_FENCE, "they have one lease, and one token");
    let (third, _) = bench.joins(read(), at(2));
    assert_eq!((bench.line.held().count(), bench.line.claims().count()), (3, 1));
    let (second, third) = (bench.position(second), bench.position(third));
    for position in [first, third] {
        let Finished { was_held, release } = bench.finish(position, at(3));
        assert!(was_held && release.is_none());
    }
    assert!(bench.finish(second, at(4)).release.is_some_and(|release| release.token == 1));
    assert!(bench.line.is_empty() && bench.notes.take().is_empty());
}

#[test]
fn r1_a_writer_that_waits_stops_later_readers_and_goes_after_the_earlier_ones() {
    let mut bench = Bench::new();
    let first = bench.leads(read(), 7, at(0));
    let writer = bench.wait(request(30 * SECOND), at(1));
    let later = bench.wait(read(), at(2));
    assert_ne!(writer.batch, later.batch);
    let also = bench.wait(read(), at(3));
    assert_eq!(also.batch, later.batch);
    assert_eq!(bench.run(at(3)), [Did::Enter(2, 0), Did::Enter(3, 0)]);
    assert!(bench.finish(first, at(4)).release.is_some());
    assert_eq!(bench.entered(2, granted(8, at(5)), at(5)), [Did::Granted(2, 8 * TOKENS_PER_FENCE)]);
    assert!(bench.finish(writer, at(6)).release.is_some(), "readers have a token of their own");
    let both = [Did::Granted(3, 9 * TOKENS_PER_FENCE), Did::Granted(4, 9 * TOKENS_PER_FENCE)];
    assert_eq!(bench.entered(3, granted(9, at(7)), at(7)), both);
}

#[test]
fn r4_readers_join_those_who_read_only_while_nobody_else_stands_behind_them() {
    let mut bench = Bench::new();
    bench.leads(read(), 7, at(0));
    bench.joins(read(), at(1));
    bench.line.sealed(|token| *token == 1, at(2));
    let later = bench.wait(read(), at(2));
    assert_ne!(later.batch, 1, "not even for a moment");
}

#[test]
fn r6_a_lease_that_is_too_old_is_renewed_before_another_one_reads_by_it() {
    let mut bench = Bench::new();
    let first = bench.leads(read(), 7, at(0));
    bench.wait(read(), at(1_001));
    assert_eq!(bench.run(at(1_001)), [Did::Renew(1, false)]);
    let grant = [Did::Granted(2, 7 * TOKENS_PER_FENCE)];
    assert_eq!(bench.renewed(30 * SECOND, at(1_002), false), grant);
    assert_eq!(bench.line.held().count(), 2);
    assert!(bench.finish(first, at(1_003)).release.is_none());
}

#[test]
fn r6_who_left_before_the_renewal_takes_nothing_from_those_who_read() {
    let mut bench = Bench::new();
    bench.leads(read(), 7, at(0));
    let second = bench.wait(read(), at(1_001));
    bench.run(at(1_001));
    bench.line.leave(second, at(1_002), &mut bench.notes);
    assert!(bench.renewed(30 * SECOND, at(1_002), false).is_empty());
    assert_eq!(bench.line.held().count(), 1);
}

#[test]
fn r10_while_readers_join_the_lease_is_renewed_at_least_twice_a_second() {
    let mut bench = Bench::new();
    bench.leads(read(), 7, at(0));
    assert!(bench.run(at(500)).is_empty(), "no reader has joined");
    bench.joins(read(), at(501));
    assert_eq!(bench.run(at(502)), [Did::Renew(1, false)]);
    assert!(bench.renewed(30 * SECOND, at(502), true).is_empty());
    let later = bench.wait(read(), at(503));
    assert_ne!(later.batch, 1, "the renewal said that others stand behind");
}

#[test]
fn r10_one_renewal_is_for_the_longest_and_each_one_ends_by_itself() {
    let mut bench = Bench::new();
    let term = Term { max_hold: Some(5 * SECOND), ..read().term };
    let short = bench.leads(read(), 7, at(0));
    let long = Request { term: Term { ttl: 31 * SECOND, ..read().term }, ..read() };
    bench.joins(Request { term, ..read() }, at(1));
    bench.joins(long, at(2));
    let did = bench.run(at(5_001));
    assert_eq!(did, [Did::Lost(2, Loss::MaxHold), Did::Renew(1, false)]);
    assert_eq!(bench.line.held().count(), 2);
    let finished = bench.finish(Position { at: 1, ..short }, at(5_002));
    assert!(!finished.was_held && finished.release.is_none(), "others read by it");
    bench.line.taken_away(&1, Loss::Taken, at(6_000), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Lost(1, Loss::Taken), Did::Lost(3, Loss::Taken)]);
    assert!(bench.finish(short, at(6_001)).release.is_none(), "one more has not let go");
    assert!(bench.finish(Position { at: 2, ..short }, at(6_002)).release.is_some());
    assert!(bench.line.is_empty());
}

#[test]
fn min_hold_of_one_reader_outlasts_the_others() {
    let mut bench = Bench::new();
    let term = Term { min_hold: Some(5 * SECOND), ..read().term };
    let first = bench.leads(Request { term, ..read() }, 7, at(0));
    let (second, _) = bench.joins(read(), at(1));
    let second = bench.position(second);
    assert!(bench.finish(first, at(1_000)).release.is_none());
    let release = bench.finish(second, at(2_000)).release.expect("no reader is left");
    assert_eq!(release.keep, Some(3 * SECOND));
}

#[test]
fn min_hold_of_one_reader_outlasts_another_whose_lease_ran_out() {
    let mut bench = Bench::new();
    let fixed = Term { renewed: false, ..read().term };
    let first = bench.leads(Request { term: fixed, ..read() }, 7, at(0));
    let kept = Term { min_hold: Some(30 * SECOND), ..read().term };
    let (second, _) = bench.joins(Request { term: kept, ..read() }, at(1000));
    let second = bench.position(second);
    assert!(bench.finish(second, at(2000)).release.is_none());
    bench.run(at(30_000));
    let release = bench.finish(first, at(30_000)).release.expect("it is to be kept");
    assert_eq!(release.keep, Some(SECOND));
}

#[test]
fn min_hold_of_one_reader_outlasts_another_that_does_not_take_its_grant() {
    let mut bench = Bench::new();
    let term = Term { min_hold: Some(5 * SECOND), ..read().term };
    let first = bench.leads(Request { term, ..read() }, 7, at(0));
    // It wants more than is left, and is granted the lock after a renewal.
    bench.wait(Request { term: Term { ttl: 60 * SECOND, ..term }, ..read() }, at(1));
    assert_eq!(bench.run(at(1)), [Did::Renew(1, false)]);
    bench.notes.asleep.push(2);
    assert_eq!(bench.renewed(60 * SECOND, at(2), false), [Did::Granted(2, 7 * TOKENS_PER_FENCE)]);
    assert!(bench.finish(first, at(3)).release.is_none());
    assert_eq!(bench.run(at(2_000)), [Did::Keep(1, 3 * SECOND)]);
}

#[test]
fn without_waiting_a_reader_joins_readers_and_tries_where_it_may_not() {
    let mut bench = Bench::new();
    bench.leads(read(), 7, at(0));
    let caller = bench.notes.caller();
    let hasty = bench.line.arrive(read(), 0, at(1), |_| caller, &mut bench.notes);
    assert!(matches!(hasty, Arrival::Held(..)), "{hasty:?}");
    let hasty = bench.line.arrive(request(SECOND), 0, at(1), |_| caller, &mut bench.notes);
    assert!(matches!(hasty, Arrival::Busy(Some(_))), "a writer finds them: {hasty:?}");
    bench.line.sealed(|token| *token == 1, at(2));
    let hasty = bench.line.arrive(read(), 0, at(2), |_| caller, &mut bench.notes);
    assert!(matches!(hasty, Arrival::Alone(_)), "the store knows the next one: {hasty:?}");
}

#[test]
fn r5_a_reader_that_does_not_take_its_grant_keeps_nobody_and_comes_back() {
    let mut bench = Bench::new();
    let writer = bench.held(7, at(0));
    bench.wait(read(), at(1));
    bench.wait(read(), at(1));
    bench.run(at(1));
    bench.finish(writer, at(2));
    bench.notes.asleep.push(2);
    bench.entered(2, granted(8, at(3)), at(3));
    assert_eq!(bench.line.held().count(), 2);
    bench.run(at(1_004));
    assert_eq!(bench.line.held().count(), 1);
    bench.notes.asleep.clear();
    bench.line.rejoin(read(), &2, at(1_005), &mut bench.notes);
    // The lease is too old by now for another reader, so it is renewed first.
    let _ = bench.run(at(1_005));
    let renew = Renew { token: 2, ttl: 30 * SECOND, draw: false, fence: 8, deadline: at(0) };
    let yes = Ok(Owned::Yes { contended: false, fence: None });
    bench.line.renewed(&renew, at(1_006), yes, at(1_006), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Granted(2, 8 * TOKENS_PER_FENCE)]);
}

#[test]
fn closing_frees_what_readers_share_once_none_of_them_uses_it() {
    for in_use in [false, true] {
        let mut bench = Bench::new();
        let first = bench.leads(read(), 7, at(0));
        let (second, _) = bench.joins(read(), at(1));
        let second = bench.position(second);
        bench.notes.closed = true;
        if in_use {
            bench.notes.bodies.push(2);
        }
        bench.line.close(at(2), &mut bench.notes);
        let last = if in_use { Did::InUse(2) } else { Did::Free(1, true) };
        let lost = [Did::Lost(1, Loss::Closed), Did::Lost(2, Loss::Closed), last];
        assert_eq!(bench.notes.take(), lost);
        assert!(bench.finish(first, at(3)).release.is_none());
        assert_eq!(bench.finish(second, at(3)).release.is_some(), in_use);
        assert!(bench.line.is_empty());
    }
}

#[test]
fn r1_as_many_ask_for_permits_at_once_as_there_are_and_the_others_wait_with_them() {
    let mut bench = Bench::new();
    bench.leads(wants(permits(3)), 7, at(0));
    let second = bench.wait(wants(permits(3)), at(1));
    let third = bench.wait(wants(permits(3)), at(1));
    assert_ne!(second.batch, third.batch);
    assert_eq!(bench.run(at(1)), [Did::Enter(2, 0), Did::Enter(3, 0)]);
    for _ in 0..9 {
        bench.wait(wants(permits(3)), at(1));
    }
    assert!(bench.run(at(1)).is_empty(), "the line has three places at the store");
    let waiting: Vec<usize> = bench.line.batches().map(|batch| batch.waiters.live()).collect();
    assert_eq!(waiting, [4, 4, 3], "as many behind each");
}

#[test]
fn r6_a_permit_goes_to_the_next_here_wherever_it_waits_in_what_was_let_in() {
    let mut bench = Bench::new();
    let first = bench.leads(wants(permits(2)), 7, at(0));
    let second = bench.wait(wants(permits(2)), at(1));
    bench.run(at(1));
    assert_eq!(bench.entered(2, granted(8, at(2)), at(2)), [Did::Granted(2, 8 * TOKENS_PER_FENCE)]);
    let third = bench.wait(wants(permits(2)), at(3));
    assert_eq!(third.batch, first.batch);
    assert!(bench.finish(second, at(4)).release.is_none());
    assert_eq!(bench.notes.take(), [Did::Granted(3, 8 * TOKENS_PER_FENCE + 1)]);
    assert_eq!((bench.line.held().count(), bench.line.claims().count()), (2, 2));
    // The loss of one permit does not affect the other.
    bench.line.taken_away(&1, Loss::Taken, at(5), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Lost(1, Loss::Taken)]);
    assert!(bench.finish(first, at(6)).release.is_some_and(|release| release.token == 1));
    assert!(bench.finish(third, at(7)).release.is_some_and(|release| release.token == 2));
    assert!(bench.line.is_empty());
}

#[test]
fn who_does_not_wait_is_told_when_all_permits_are_out_here() {
    let mut bench = Bench::new();
    bench.leads(wants(permits(2)), 7, at(0));
    let caller = bench.notes.caller();
    let second = bench.line.arrive(wants(permits(2)), 0, at(1), |_| caller, &mut bench.notes);
    let Arrival::Alone(attempt) = second else { panic!("one may be left: {second:?}") };
    let answer = Ok(Answer::Granted { fence: 8, sent: at(1) });
    let own = wants(permits(2));
    bench.line.tried_alone(&attempt, own, answer, at(1), &mut bench.notes);
    let third = bench.line.arrive(own, 0, at(2), |_| caller, &mut bench.notes);
    assert!(matches!(third, Arrival::Busy(Some(_))), "{third:?}");
}

fn exchanged(fence: u64, now: Moment, contended: bool) -> Exchanged {
    Exchanged::Granted { fence, sent: now, contended }
}

#[test]
fn a_writer_goes_on_as_a_reader_and_those_behind_it_ask_from_its_place() {
    let mut bench = Bench::new();
    let writer = bench.held(7, at(0));
    let second = bench.wait(request(30 * SECOND), at(1));
    let exchange = bench.line.downgrade(writer, at(2), &mut bench.notes).expect("it is held");
    assert_eq!((exchange.old, exchange.new), (1, 2));
    let again = bench.line.downgrade(writer, at(3), &mut bench.notes);
    assert_eq!(again.as_ref(), Some(&exchange), "the answer may have been lost");
    let answer = exchanged(9, at(3), false);
    let went = bench.line.exchanged(writer, &exchange, answer, at(4), &mut bench.notes);
    let (position, grant) = went.expect("it was held all the time");
    assert_eq!(grant.fencing_token, 9 * TOKENS_PER_FENCE);
    assert_ne!(position.batch, writer.batch);
    assert_eq!(
        bench.run(at(4)),
        [Did::Enter(3, 7)],
        "from the position of the one that was let in"
    );
    assert!(bench.finish(position, at(5)).release.is_some_and(|release| release.token == 2));
    let grant = [Did::Granted(2, 10 * TOKENS_PER_FENCE)];
    assert_eq!(bench.entered(3, granted(10, at(6)), at(6)), grant);
    assert!(bench.finish(second, at(7)).release.is_some());
    assert!(bench.line.is_empty());
}

/// Fault: FC8.
#[test]
fn a_writer_that_goes_on_as_a_reader_keeps_its_min_hold_and_its_max_hold() {
    for (min_hold, max_hold) in [(Some(60 * SECOND), None), (None, Some(20 * SECOND))] {
        let mut bench = Bench::new();
        let term = Term { min_hold, max_hold, ..request(30 * SECOND).term };
        let writer = bench.leads(Request { term, ..request(30 * SECOND) }, 7, at(0));
        let exchange = bench.line.downgrade(writer, at(10_000), &mut bench.notes).expect("held");
        let stored_for = exchange.term.stored_for();
        match max_hold {
            // Ten seconds are left of each, and some time for the drift of clocks.
            Some(_) => assert!(stored_for <= 11 * SECOND, "{stored_for:?}"),
            None => assert_eq!(stored_for, 50 * SECOND),
        }
        let answer = exchanged(9, at(10_000), false);
        let went = bench.line.exchanged(writer, &exchange, answer, at(10_001), &mut bench.notes);
        let (position, grant) = went.expect("it was held all the time");
        assert!(max_hold.is_none() || grant.deadline <= at(21_000));
        let release = bench.finish(position, at(11_000)).release.expect("it was the last");
        assert_eq!(release.keep, min_hold.map(|_| 49 * SECOND));
    }
}

#[test]
fn others_read_with_a_writer_that_went_on_as_a_reader_unless_somebody_stands_behind_it() {
    for contended in [false, true] {
        let mut bench = Bench::new();
        let writer = bench.held(7, at(0));
        let exchange = bench.line.downgrade(writer, at(1), &mut bench.notes).expect("it is held");
        let answer = exchanged(9, at(1), contended);
        let went = bench.line.exchanged(writer, &exchange, answer, at(2), &mut bench.notes);
        assert_eq!(went.map(|(position, _)| position), Some(writer));
        match bench.arrive(read(), at(3)) {
            Arrival::Held(_, _, grant) => {
                assert!(!contended && grant.fencing_token == 9 * TOKENS_PER_FENCE);
            }
            other => assert!(contended, "{other:?}"),
        }
    }
}

#[test]
fn while_a_token_is_exchanged_nobody_here_gets_the_lock_by_it() {
    let mut bench = Bench::new();
    let writer = bench.held(7, at(0));
    bench.wait(request(30 * SECOND), at(1));
    bench.line.downgrade(writer, at(2), &mut bench.notes).expect("it is held");
    assert!(bench.run(at(20_000)).is_empty(), "not renewed");
    let renew = Renew { token: 1, ttl: SECOND, draw: false, fence: 7, deadline: at(0) };
    bench.line.renewed(&renew, at(2), Ok(Owned::No), at(3), &mut bench.notes);
    assert!(bench.notes.take().is_empty(), "it may be the other one's by now");
    assert!(bench.finish(writer, at(20_001)).release.is_none());
    assert_eq!(bench.notes.take(), [Did::Release(2), Did::Retire(1)]);
    assert_eq!(bench.run(at(20_001)), [Did::Enter(3, 7), Did::Release(1)]);
}
