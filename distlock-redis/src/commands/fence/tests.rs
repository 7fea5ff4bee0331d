use super::*;

/// Fault: FC8.
#[test]
fn of_several_values_drawn_at_once_the_first_is_above_all_that_were_seen() {
    let fences = Fences::new("distlock:fence".into());
    let fence = Fence::new("distlock:fence".into());
    let seen = 1_000_000;
    fence.has_seen(seen);
    // The counter went back by a little: only some of the values are new.
    for last in [seen - 1, seen, seen + 1, seen + FENCES_PER_DRAW - 1] {
        assert!(!fences.are_new(&fence, last, seen).expect("an honest value"), "{last}");
        assert_eq!(fence.seen(), seen);
    }
    let last = seen + FENCES_PER_DRAW;
    assert!(fences.are_new(&fence, last, seen).expect("an honest value"));
    assert_eq!(fence.seen(), last);
}
