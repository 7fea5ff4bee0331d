//! A body that takes longer than the expiry of its lock.

use std::time::Duration;

use crate::stage::{Error, LEASE, LONG, SHORT, Stage, Story};

pub(crate) const TITLE: &str = "A body that is longer than the expiry";
pub(crate) const FLAW: &str = "\
The expiry is never extended, and the body does not learn that it is over.";

/// Short enough to see it through, long enough for renewals on a machine with other work.
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b, key) = (stage.redis().await?, stage.redis().await?, stage.key("body"));
    let story = Story::default();
    if a.set_nx(&key, "A", SHORT).await? {
        story.enters("A", "SET NX PX, has the lock");
    }
    a.expired(&key).await;
    story.tell("A", "works for longer than the expiry");
    if b.set_nx(&key, "B", LONG).await? {
        story.enters("B", "SET NX PX, has the lock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (a, b, key) = (stage.locks().await?, stage.locks().await?, stage.key("body"));
    let story = Story::default();
    let long_body = async {
        story.enters("A", "has the lock");
        tokio::time::sleep(TTL * 3 / 2).await;
        story.tell("A", "works for longer than the ttl; its lease is renewed meanwhile");
        match b.lock(&*key).try_acquire().await? {
            Some(_) => story.enters("B", "has the lock"),
            None => story.tell("B", "is told that the lock is held elsewhere"),
        }
        story.leaves("A");
        Ok::<_, Error>(())
    };
    a.lock(&*key).ttl(TTL).run(long_body).await??;
    // And where it is not renewed, the body is stopped.
    let endless = async {
        story.enters("A", "has the lock again, without renewal,");
        std::future::pending::<()>().await;
    };
    let stopped = a.lock(&*key).ttl(LEASE).renew(false).run(endless).await;
    story.leaves("A");
    match stopped {
        Err(error) if error.is_lost() => story.tell("A", "is stopped before its lease ends"),
        _ => story.fails("the body went on without its lease"),
    }
    let _theirs = b.lock(&*key).wait(LONG).acquire().await?;
    story.enters("B", "has the lock");
    Ok(story)
}
