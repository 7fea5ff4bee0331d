//! The rules for an exclusive lock, each on a line of its own.

use std::time::Duration;

use super::super::*;
use super::bench::*;
use crate::clock::Moment;
use crate::store::Term;

#[test]
fn who_finds_nobody_takes_the_lock_and_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let position = bench.held(7, at(0));
    assert!(bench.line.due() > at(0));
    let Finished { was_held, release } = bench.finish(position, at(1));
    assert!(was_held && release.is_some_and(|release| release.token == 1));
    assert!(bench.line.is_empty() && bench.notes.take().is_empty());
    assert_eq!(bench.line.due(), Moment::NEVER);
}

#[test]
fn r6_a_lease_is_handed_to_the_next_in_order_with_a_higher_fencing_token() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    let second = bench.wait(request(30 * SECOND), at(1));
    let third = bench.wait(request(30 * SECOND), at(2));
    assert!(bench.finish(first, at(3)).release.is_none());
    assert_eq!(bench.notes.take(), [Did::Granted(2, 7 * TOKENS_PER_FENCE + 1)]);
    assert!(bench.finish(second, at(4)).release.is_none());
    assert_eq!(bench.notes.take(), [Did::Granted(3, 7 * TOKENS_PER_FENCE + 2)]);
    assert!(bench.finish(third, at(5)).release.is_some());
}

#[test]
fn r6_too_much_is_left_for_the_next_holder_so_it_asks_from_its_place_before_the_release() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    bench.wait(request(SECOND), at(1));
    assert!(bench.finish(first, at(2)).release.is_none());
    assert_eq!(bench.notes.take(), [Did::Retire(1)]);
    assert!(bench.line.due() <= at(2));
    assert_eq!(bench.run(at(2)), [Did::Enter(2, 7), Did::Release(1)]);
}

#[test]
fn r6_too_little_is_left_so_it_is_renewed_first() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    bench.wait(request(60 * SECOND), at(1));
    assert!(bench.finish(first, at(2)).release.is_none());
    assert_eq!(bench.run(at(2)), [Did::Renew(1, false)]);
    let (ttl, deadline) = (60 * SECOND, at(0));
    let renew = Renew { token: 1, ttl, draw: false, fence: 7, deadline };
    let yes = Ok(Owned::Yes { contended: false, fence: None });
    bench.line.renewed(&renew, at(2), yes, at(3), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Granted(2, 7 * TOKENS_PER_FENCE + 1)]);
}

#[test]
fn r6_a_lock_that_is_stored_for_a_min_hold_is_a_lease_of_that_length_for_whoever_is_next() {
    let mut bench = Bench::new();
    let term = Term { min_hold: Some(30 * SECOND), ..request(SECOND).term };
    let OwnAttempt { position, .. } = bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    assert_eq!(bench.run(at(0)), [Did::TookOver(1), Did::Enter(1, 0)]);
    // The caller that the lock was asked for is gone when it is granted.
    bench.line.leave(position, at(1), &mut bench.notes);
    let granted = Entered::Granted { fence: 7, sent: at(0), contended: false };
    bench.line.entered(&1, term, Ok(granted), at(2), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Granted(2, 7 * TOKENS_PER_FENCE)]);
    let ends: Vec<_> = bench.line.claims().map(|claim| claim.deadline).collect();
    assert!(ends[0] > at(27_000), "{ends:?}");
}

#[test]
fn r2_the_engine_asks_for_a_leader_on_whom_another_depends() {
    let mut bench = Bench::new();
    let leader = bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    assert_eq!(bench.notes.take(), [Did::TookOver(1)]);
    assert_eq!(bench.run(at(0)), [Did::Enter(1, 0)]);
    assert_eq!(bench.tried(leader.position, 7, at(1)), AttemptOutcome::TakenOver);
    let granted = Entered::Granted { fence: 8, sent: at(1), contended: false };
    assert_eq!(bench.entered(1, granted, at(2)), [Did::Granted(1, 8 * TOKENS_PER_FENCE)]);
}

#[test]
fn r3_a_grant_that_comes_too_late_is_asked_for_again_and_the_second_time_from_the_end() {
    let mut bench = Bench::new();
    bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    bench.run(at(0));
    let granted = Entered::Granted { fence: 8, sent: at(0), contended: false };
    assert_eq!(bench.entered(1, granted, at(30_000)), [Did::Retire(1)]);
    assert_eq!(bench.run(at(30_000)), [Did::Enter(2, 8), Did::Release(1)]);
    let granted = Entered::Granted { fence: 9, sent: at(30_000), contended: false };
    assert_eq!(bench.entered(2, granted, at(59_990)), [Did::Release(2)]);
    assert!(bench.run(at(59_990)).is_empty(), "after a pause");
    assert_eq!(bench.run(at(59_990 + 50)), [Did::Enter(3, 0)]);
}

#[test]
fn r4_who_arrives_after_the_seal_stands_behind() {
    let mut bench = Bench::new();
    bench.lead(at(0));
    let second = bench.wait(request(30 * SECOND), at(0));
    bench.run(at(0));
    bench.entered(1, stands(5, 1), at(1));
    // Tasks that return together stay together. A second seal does not extend that time.
    assert_eq!(bench.wait(request(30 * SECOND), at(2)).batch, second.batch);
    bench.line.sealed(|token| *token == 1, at(4));
    assert_ne!(bench.wait(request(30 * SECOND), at(6)).batch, second.batch);
    assert_eq!(bench.run(at(6)), [Did::Enter(2, 0)]);
}

#[test]
fn r4_a_turn_admits_half_as_many_again() {
    let mut batch = queued(1);
    batch.queued().expect("it waits").stands = true;
    for n in 0..5 {
        let number = batch.waiters.number();
        batch.join(number, request(SECOND), n);
    }
    batch.seal(at(0));
    let claim = Claim::granted((1, Limit::ALONE), 7, at(0), request(SECOND).term, true);
    batch.owns(Claims::one(claim));
    for n in 5..7 {
        assert!(batch.admits(at(0)));
        assert!(!batch.admits(at(5)), "others have stood behind it for too long");
        let number = batch.waiters.number();
        batch.join(number, request(SECOND), n);
    }
    assert!(!batch.admits(at(0)), "it would never come to an end");
}

#[test]
fn r4_who_took_a_free_lock_lets_nobody_past_those_behind() {
    let mut batch = queued(1);
    for n in 0..2 {
        let number = batch.waiters.number();
        batch.join(number, request(SECOND), n);
    }
    batch.owns(Claims::one(Claim::granted(
        (1, Limit::ALONE),
        7,
        at(0),
        request(SECOND).term,
        true,
    )));
    assert!(batch.admits(at(0)));
    batch.seal(at(0));
    assert!(!batch.admits(at(0)));
}

#[test]
fn r5_a_grant_that_is_not_taken_goes_to_the_next_and_its_caller_comes_back_in_front() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    bench.wait(request(30 * SECOND), at(1));
    let third = bench.wait(request(30 * SECOND), at(1));
    bench.notes.asleep.push(2);
    bench.finish(first, at(2));
    bench.notes.take();
    assert!(!bench.run(at(900)).contains(&Did::Granted(3, 7 * TOKENS_PER_FENCE + 2)));
    // The lease is renewed meanwhile, so that it can be handed over.
    let (ttl, deadline) = (30 * SECOND, at(0));
    let renew = Renew { token: 1, ttl, draw: false, fence: 7, deadline };
    let yes = Ok(Owned::Yes { contended: false, fence: None });
    bench.line.renewed(&renew, at(900), yes, at(901), &mut bench.notes);
    assert!(bench.run(at(1002)).contains(&Did::Granted(3, 7 * TOKENS_PER_FENCE + 2)));
    let again = bench.line.rejoin(request(30 * SECOND), &2, at(1003), &mut bench.notes);
    assert!(again.is_some_and(|position| position.batch == third.batch && position.at < third.at));
    bench.finish(third, at(1004));
    assert!(bench.notes.take().contains(&Did::Granted(2, 7 * TOKENS_PER_FENCE + 3)));
}

#[test]
fn r8_an_empty_batch_leaves_the_queue() {
    let mut bench = Bench::new();
    let leader = bench.lead(at(0));
    let second = bench.wait(request(30 * SECOND), at(0));
    bench.run(at(0));
    assert!(bench.line.leave(second, at(1), &mut bench.notes).is_none());
    assert!(!bench.line.give_up_try(leader.position));
    assert!(bench.line.leave(leader.position, at(1), &mut bench.notes).is_none());
    assert_eq!(bench.notes.take(), [Did::Release(1)]);
    assert!(bench.line.is_empty());
}

#[test]
fn r10_who_waits_behind_a_lost_lease_asks_from_its_place_before_the_lost_token_is_released() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    bench.wait(request(30 * SECOND), at(1));
    bench.line.taken_away(&1, Loss::Taken, at(2), &mut bench.notes);
    assert_eq!(bench.notes.take(), [Did::Lost(1, Loss::Taken)]);
    let Finished { was_held, release } = bench.finish(first, at(3));
    assert!(!was_held && release.is_none());
    assert_eq!(bench.notes.take(), [Did::Retire(1)]);
    assert_eq!(bench.run(at(3)), [Did::Enter(2, 7), Did::Release(1)]);
}

#[test]
fn r10_a_lease_is_renewed_after_a_third_and_lost_at_its_deadline() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    assert!(bench.run(at(8_000)).is_empty());
    assert_eq!(bench.run(at(10_000)), [Did::Renew(1, false)]);
    assert!(bench.run(at(10_001)).is_empty(), "one at a time");
    assert_eq!(bench.run(at(30_000)), [Did::Lost(1, Loss::Expired)]);
    assert!(bench.finish(first, at(30_001)).release.is_some(), "whatever the store keeps");
    assert!(bench.line.is_empty());
}

#[test]
fn r12_a_place_that_had_to_be_put_back_gets_a_longer_reservation() {
    let mut bench = Bench::new();
    bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    bench.run(at(0));
    bench.entered(1, stands(5, 0), at(1));
    bench.line.called(|token| *token == 1);
    assert_eq!(bench.run(at(2)), [Did::Enter(1, 5)]);
    bench.entered(1, stands(5, 0), at(3));
    assert_eq!(bench.run(at(3)), [Did::Retire(1), Did::Enter(2, 5), Did::Release(1)]);
}

#[test]
fn r13_a_process_that_is_not_notified_says_so_in_its_tokens() {
    let mut bench = Bench::new();
    bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    bench.run(at(0));
    bench.entered(1, stands(5, 0), at(1));
    bench.notes.deaf = true;
    bench.line.look_all();
    assert_eq!(bench.run(at(2)), [Did::Retire(1), Did::Enter(2, 5), Did::Release(1)]);
}

#[test]
fn min_hold_keeps_the_lock_and_those_who_wait_ask_again() {
    let mut bench = Bench::new();
    let term = Term { min_hold: Some(5 * SECOND), ..request(30 * SECOND).term };
    let caller = bench.notes.caller();
    let kept = Request { term, ..request(30 * SECOND) };
    let arrival = bench.line.arrive(kept, usize::MAX, at(0), |_| caller, &mut bench.notes);
    let Arrival::Lead(OwnAttempt { position, token, .. }) = arrival else {
        panic!("it does not lead")
    };
    bench.notes.sent.push(token);
    bench.tried(position, 7, at(0));
    bench.wait(request(30 * SECOND), at(1));
    let release = bench.finish(position, at(1000)).release.expect("it is to be kept");
    assert_eq!((release.token, release.keep), (1, Some(4 * SECOND)));
    assert_eq!(bench.run(at(1000)), [Did::Enter(2, 7)]);
}

#[test]
fn close_frees_what_is_not_in_use_and_denies_those_who_wait() {
    for in_use in [false, true] {
        let mut bench = Bench::new();
        let position = bench.held(7, at(0));
        bench.wait(request(30 * SECOND), at(1));
        bench.notes.closed = true;
        if in_use {
            bench.notes.bodies.push(1);
        }
        bench.line.close(at(2), &mut bench.notes);
        let last = if in_use { Did::InUse(1) } else { Did::Free(1, true) };
        let did = [Did::Denied(2, Denied::Closed), Did::Lost(1, Loss::Closed), last];
        assert_eq!(bench.notes.take(), did);
        let release = bench.finish(position, at(3)).release;
        assert_eq!(release.is_some(), in_use);
        assert!(bench.line.is_empty());
    }
}

#[test]
fn who_does_not_wait_tries_past_the_line_only_if_nobody_here_has_the_lock() {
    let mut bench = Bench::new();
    bench.lead(at(0));
    bench.wait(request(30 * SECOND), at(0));
    let now = at(1);
    let caller = bench.notes.caller();
    let hasty = request(30 * SECOND);
    let alone = bench.line.arrive(hasty, 0, now, |_| caller, &mut bench.notes);
    let Arrival::Alone(attempt) = alone else { panic!("it joins: {alone:?}") };
    let answer = Ok(Answer::Granted { fence: 9, sent: now });
    let tried = bench.line.tried_alone(&attempt, hasty, answer, now, &mut bench.notes);
    assert!(matches!(tried, AttemptOutcome::Held(_)));
    assert_eq!(bench.line.held().count(), 1);
    let Finished { was_held, release } = bench.finish(attempt.position, at(2));
    assert!(was_held && release.is_some_and(|release| release.token == attempt.token));
}

#[test]
fn those_past_their_time_are_woken_and_passed_over() {
    let mut bench = Bench::new();
    let first = bench.held(7, at(0));
    bench.wait(Request { answer_by: at(5), ..request(30 * SECOND) }, at(1));
    bench.wait(request(30 * SECOND), at(1));
    bench.finish(first, at(6));
    // The line has removed it, so nothing else would wake it when its time is over.
    assert_eq!(bench.notes.take(), [Did::Woke(2), Did::Granted(3, 7 * TOKENS_PER_FENCE + 1)]);
}

#[test]
fn places_of_those_who_left_are_given_back() {
    let mut waiters = Waiters::<Plain>::new();
    for n in 0..1000 {
        let number = waiters.number();
        waiters.push_back(number, request(SECOND), n);
    }
    for n in 0..1000 {
        assert!(waiters.leave(n));
        assert!(!waiters.leave(n));
        let live = waiters.live();
        assert_eq!(live as i64, 999 - n);
        assert!(waiters.places() <= 2 * live + 17, "{} for {live}", waiters.places());
    }
    assert!(waiters.next(at(0), &mut TestShell::default()).is_none());
}

/// Hands the lock over until the line draws counter values. Checks that the fencing tokens grow, and returns how many
/// were given out.
fn hand_on_until_it_draws(bench: &mut Bench, position: &mut Position, above: &mut u64) -> u64 {
    for count in 1.. {
        let next = bench.wait(request(30 * SECOND), at(1));
        bench.finish(*position, at(1));
        *position = next;
        for did in bench.notes.take() {
            let Did::Granted(_, token) = did else { panic!("{did:?}") };
            assert!(token > *above);
            *above = token;
        }
        if bench.run(at(1)).contains(&Did::Renew(1, true)) {
            return count;
        }
    }
    unreachable!("it has no end of tokens");
}

#[test]
fn r5_all_counter_values_that_were_drawn_at_once_are_used_before_others_are_drawn() {
    let mut bench = Bench::new();
    let (mut position, mut last) = (bench.held(7, at(0)), 7 * TOKENS_PER_FENCE);
    let of_one = hand_on_until_it_draws(&mut bench, &mut position, &mut last);
    assert_eq!(of_one, TOKENS_PER_FENCE / 2);
    let (ttl, deadline) = (30 * SECOND, at(0));
    let renew = Renew { token: 1, ttl, draw: true, fence: 7, deadline };
    // Others have drawn 8.
    let drawn = Ok(Owned::Yes { contended: false, fence: Some(8 + FENCES) });
    bench.line.renewed(&renew, at(1), drawn, at(1), &mut bench.notes);
    let of_several = hand_on_until_it_draws(&mut bench, &mut position, &mut last);
    assert_eq!(last, (8 + FENCES) * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2);
    assert_eq!(of_several, (FENCES - 1) * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2 + 1);
    // No answer arrives: the remaining fencing tokens are used, and then the next waiter awaits more.
    let mut given = Vec::new();
    for _ in 0..TOKENS_PER_FENCE {
        let next = bench.wait(request(30 * SECOND), at(2));
        bench.finish(position, at(2));
        position = next;
        given.extend(bench.notes.take());
    }
    assert_eq!(given.len() as u64, TOKENS_PER_FENCE / 2 - 1);
    let highest = (8 + FENCES + 1) * TOKENS_PER_FENCE - 1;
    assert!(matches!(given.last(), Some(Did::Granted(_, token)) if *token == highest), "{given:?}");
}

/// Fault: FC8.
#[test]
fn r7_a_lock_that_was_handed_to_several_is_looked_at_after_the_longest_reservation() {
    let next = |ours, ms| NextOwner { ours, reserved_for: Duration::from_millis(ms) };
    for several in [[1000, 3000, 2000], [3000, 1000, 2000], [1000, 2000, 3000]] {
        let several = several.map(|ms| next(false, ms));
        let repeat = FollowUp::RepeatAfter(Duration::from_millis(3005));
        assert_eq!(follow_up(None, false, several, true), repeat);
    }
    // Reservations of this process are looked at in any case, however long they last.
    let mixed = [next(true, 3000), next(false, 1000)];
    let repeat = FollowUp::RepeatAfter(Duration::from_millis(1005));
    assert_eq!(follow_up(None, false, mixed, true), repeat);
}
