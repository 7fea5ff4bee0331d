//! A release in a transaction that watches the lock.

use crate::stage::{Error, LEASE, LONG, Redis, Stage, Story};

pub(crate) const TITLE: &str = "Freed with WATCH and MULTI";
pub(crate) const FLAW: &str = "\
WATCH belongs to the connection, and the tasks of a process share one. The EXEC of one task ends
what another one watches. Where each task has a connection of its own, it takes five commands and
four round trips for what one script does in one.";

/// As taught: true if it has deleted its own lock. `pause`: before `MULTI`.
async fn unlock(
    redis: &Redis,
    key: &str,
    value: &str,
    pause: impl AsyncFnOnce() -> Result<(), Error>,
) -> Result<bool, Error> {
    redis.ask::<()>(&["WATCH", key]).await?;
    let stored: Option<String> = redis.ask(&["GET", key]).await?;
    if stored.as_deref() != Some(value) {
        redis.ask::<()>(&["UNWATCH"]).await?;
        return Ok(false);
    }
    pause().await?;
    redis.ask::<()>(&["MULTI"]).await?;
    redis.ask::<()>(&["DEL", key]).await?;
    Ok(redis.ask::<Option<Vec<i64>>>(&["EXEC"]).await?.is_some())
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (shared, b, c) = (stage.redis().await?, stage.redis().await?, stage.redis().await?);
    let (story, key, another) = (Story::default(), stage.key("watch"), stage.key("watch-another"));
    shared.set_nx(&another, "T", LONG).await?;
    // Long enough for the `WATCH` and `GET` that follow, on a machine with other work.
    if shared.set_nx(&key, "A", 2 * LEASE).await? {
        story.enters("A", "SET NX PX, has the lock");
    }
    story.leaves("A");
    let meanwhile = async || {
        story.tell("A", "is done: WATCH, GET says that it is its own; and is paused");
        if unlock(&shared, &another, "T", async || Ok(())).await? {
            story.tell(
                "T",
                "(a task of A's process) frees another lock: WATCH, GET, MULTI, DEL, EXEC",
            );
        }
        b.expired(&key).await;
        if b.set_nx(&key, "B", LONG).await? {
            story.enters("B", "SET NX PX after A's lock has expired, has the lock");
        }
        Ok(())
    };
    if unlock(&shared, &key, "A", meanwhile).await? {
        story.tell(
            "A",
            "goes on: MULTI, DEL, EXEC. Nothing is watched any more: B's lock is deleted",
        );
    }
    if c.set_nx(&key, "C", LONG).await? {
        story.enters("C", "SET NX PX, has the lock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (a, b, c) = (stage.locks().await?, stage.locks().await?, stage.locks().await?);
    let (story, key) = (Story::default(), stage.key("watch"));
    // A's process frees another lock over the same connection meanwhile.
    let another = a.lock(stage.key("watch-another")).acquire().await?;
    let guard = a.lock(&*key).ttl(LEASE).renew(false).acquire().await?;
    story.enters("A", "has the lock, without renewal,");
    guard.lost().await;
    story.leaves("A");
    story.tell("A", "is done, and paused before its release until its lease has run out");
    another.release().await?;
    story.tell("T", "(a task of A's process) frees another lock over the same connection");
    let _theirs = b.lock(&*key).wait(LONG).acquire().await?;
    story.enters("B", "has the lock");
    match guard.release().await {
        Err(error) if error.is_lost() => {
            story.tell(
                "A",
                "releases with one script, which compares, and is told that it was lost",
            );
        }
        _ => story.fails("A freed a lock that was not its own"),
    }
    match c.lock(&*key).try_acquire().await? {
        Some(_) => story.enters("C", "has the lock"),
        None => story.tell("C", "is told that the lock is held elsewhere"),
    }
    Ok(story)
}
