//! Suggestions for unknown names: "did you mean".

/// Returns the option that an unknown name stands for, and the error message. `names` are all options.
pub(crate) fn option(unknown: &str, names: &[&'static str]) -> (Option<&'static str>, String) {
    let answer = name_in_other_libraries(unknown);
    let named = answer.and_then(|answer| {
        let name = answer.strip_prefix("it is called `")?.split('`').next()?;
        names.iter().copied().find(|known| *known == name)
    });
    let meant = named.or_else(|| nearest(unknown, names.iter().copied()));
    let message = if let Some(answer) = answer {
        format!("unknown option `{unknown}`: {answer}")
    } else if let Some(name) = meant {
        format!("unknown option `{unknown}`: did you mean `{name}`?")
    } else {
        let names = names.join("`, `");
        format!("unknown option `{unknown}`: there are `{names}`")
    };
    (meant, message)
}

/// Explains which option replaces a name of another library.
fn name_in_other_libraries(name: &str) -> Option<&'static str> {
    match plain(name).as_str() {
        "timeout" | "waittime" | "waittimeout" | "acquiretimeout" | "maxwait"
        | "blockingtimeout" | "locktimeout" => {
            Some("it is called `wait` here: how long to wait while others hold the lock")
        }
        "expire" | "expires" | "expiry" | "expiration" | "expiretime" | "lease" | "leasetime" => {
            Some(
                "it is called `ttl` here, and is renewed while the body runs; add `renew = false` for a \
             fixed lease",
            )
        }
        "lockatmostfor" => Some("it is called `max_hold` here"),
        "lockatleastfor" => Some("it is called `min_hold` here"),
        "client" | "pool" | "redis" | "conn" | "connection" => {
            Some("it is called `manager` here, and takes a `LockManager`")
        }
        "timeunit" | "unit" => Some("a duration carries its unit: `ttl = \"5s\"`"),
        "lockname" | "lockkey" | "resource" | "value" | "id" => {
            Some("it is called `key` here: what to lock")
        }
        "retry" | "retries" | "retrycount" | "retrydelay" | "retryinterval" | "blocking" => {
            Some("it is called `wait` here: a duration; waiters are woken, and do not retry")
        }
        "watchdog" | "autorenew" | "autorenewal" | "autoextend" | "autoextension" | "keepalive" => {
            Some("it is called `renew` here, and is on unless `renew = false`")
        }
        "condition" | "if" | "unless" => Some("it is called `when` here: lock only if it is true"),
        "fallback" | "orelse" | "onerror" | "onbusy" | "failstrategy" | "lockfailurestrategy" => {
            Some("it is called `on_fail` here: what to return without the lock")
        }
        "namespace" | "keyprefix" => Some("it is called `prefix` here"),
        "shared" | "read" | "readlock" | "readonly" | "reader" | "readers" => Some(
            "it is called `mode` here: write `mode = read`, which lets any number of readers in at once",
        ),
        "exclusive" | "write" | "writelock" | "writer" => Some(
            "it is called `mode` here: write `mode = write`, or nothing, since it is the default",
        ),
        "locktype" | "lockmode" | "readwrite" | "rwlock" => {
            Some("it is called `mode` here: `read`, or `write` (the default)")
        }
        "limit" | "maxconcurrent" | "maxconcurrency" | "concurrency" | "count" | "maxcount"
        | "slots" | "maxleases" | "leases" | "capacity" | "semaphore" => {
            Some("it is called `permits` here: how many may hold the lock at once")
        }
        "fair" => Some("every lock is fair here: first come, first served"),
        _ => None,
    }
}

/// Returns the name nearest to `wrong`, if one is near enough to be a slip.
pub(crate) fn nearest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wrong = plain(wrong);
    // Allows one slip in three letters: `tll` finds `ttl`, but `retry` finds nothing.
    let limit = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(&wrong, &plain(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Removes the difference between `camelCase` and `snake_case`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Counts the edits between two words. A swap of neighbours counts as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("wiat", "wait"), 1);
    }

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let names = ["key", "ttl", "wait", "manager", "max_hold"];
        assert_eq!(nearest("tll", names), Some("ttl"));
        assert_eq!(nearest("mangaer", names), Some("manager"));
        assert_eq!(nearest("maxHold", names), Some("max_hold"));
        assert_eq!(nearest("retry", names), None);
    }
}
