//! A lock that is freed with DEL.

use crate::stage::{Error, LEASE, LONG, SHORT, Stage, Story};

pub(crate) const TITLE: &str = "Freed with DEL";
pub(crate) const FLAW: &str = "\
DEL does not ask whose lock it deletes. A holder that comes back after its expiry deletes the lock
of the next one.";

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b, c) = (stage.redis().await?, stage.redis().await?, stage.redis().await?);
    let (story, key) = (Story::default(), stage.key("del"));
    if a.set_nx(&key, "A", SHORT).await? {
        story.enters("A", "SET NX PX, has the lock");
    }
    a.expired(&key).await;
    story.leaves("A");
    story.tell("A", "is paused at its last line until its lock has expired");
    if b.set_nx(&key, "B", LONG).await? {
        story.enters("B", "SET NX PX, has the lock");
    }
    a.ask::<()>(&["DEL", &key]).await?;
    story.tell("A", "goes on: DEL, which deletes B's lock");
    if c.set_nx(&key, "C", LONG).await? {
        story.enters("C", "SET NX PX, has the lock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (a, b, c) = (stage.locks().await?, stage.locks().await?, stage.locks().await?);
    let (story, key) = (Story::default(), stage.key("del"));
    late_release(&story, &key, [&a, &b, &c]).await?;
    Ok(story)
}

/// A's lease runs out, B has the lock, A releases, C asks.
pub(crate) async fn late_release(
    story: &Story,
    key: &str,
    [a, b, c]: [&distlock::LockManager; 3],
) -> Result<(), Error> {
    // Renewed, the lease would not run out while the process lives.
    let guard = a.lock(key).ttl(LEASE).renew(false).acquire().await?;
    story.enters("A", "has the lock, without renewal,");
    guard.lost().await;
    story.leaves("A");
    story.tell("A", "is paused at its last line until its lease has run out");
    let _theirs = b.lock(key).wait(LONG).acquire().await?;
    story.enters("B", "has the lock");
    match guard.release().await {
        Err(error) if error.is_lost() => story.tell("A", "releases, and is told that it was lost"),
        _ => story.fails("A freed a lock that was not its own"),
    }
    match c.lock(key).try_acquire().await? {
        Some(_) => story.enters("C", "has the lock"),
        None => story.tell("C", "is told that the lock is held elsewhere"),
    }
    Ok(())
}
