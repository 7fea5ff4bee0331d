//! An expiry that clients compute with their own clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stage::{Error, Redis, Stage, Story};

pub(crate) const TITLE: &str = "SETNX with a time, GETSET when it is over";
pub(crate) const FLAW: &str = "\
The expiry is in the value, and each client compares it with its own clock. A clock that is ahead
steals the lock from a holder that has time left; and the client that loses the race for an expired lock
has overwritten the winner's value, so that the winner cannot unlock it.";

const EXPIRY: Duration = Duration::from_secs(2);
const AHEAD: Duration = Duration::from_secs(5);

/// A client and its clock.
struct Client {
    redis: Redis,
    ahead: Duration,
}

impl Client {
    fn now(&self) -> Result<Duration, Error> {
        Ok(SystemTime::now().duration_since(UNIX_EPOCH)? + self.ahead)
    }

    /// As taught: what was stored if it has the lock. `pause`: between `GET` and `GETSET`.
    async fn lock(
        &self,
        key: &str,
        pause: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        let until = (self.now()? + EXPIRY).as_nanos().to_string();
        if self.redis.ask::<bool>(&["SETNX", key, &until]).await? {
            return Ok(Some(until));
        }
        let stored: String = self.redis.ask(&["GET", key]).await?;
        if stored.parse::<u128>()? > self.now()?.as_nanos() {
            return Ok(None);
        }
        pause().await?;
        let replaced: String = self.redis.ask(&["GETSET", key, &until]).await?;
        Ok((replaced == stored).then_some(until))
    }
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let key = stage.key("clocks");
    let client = async |ahead| Ok::<_, Error>(Client { redis: stage.redis().await?, ahead });
    let a = client(Duration::ZERO).await?;
    let (b, c) = (client(AHEAD).await?, client(AHEAD).await?);
    let story = Story::default();
    let nothing = async || Ok(());
    if a.lock(&key, nothing).await?.is_some() {
        story.enters("A", "SETNX with a time in 2 s, has the lock");
    }
    let mut value_of_c = None;
    let meanwhile = async || {
        story.tell("B", "has a clock that is 5 s ahead, finds A's time over, and is paused");
        value_of_c = c.lock(&key, async || Ok(())).await?;
        if value_of_c.is_some() {
            story.enters("C", "has the same clock: GETSET, has the lock");
        }
        Ok(())
    };
    let value_of_b = b.lock(&key, meanwhile).await?;
    let stored: String = a.redis.ask(&["GET", &key]).await?;
    if value_of_b.is_none() && value_of_c.is_some_and(|value| value != stored) {
        story.tell("B", "goes on: GETSET. B has lost, and C's value is gone: C cannot unlock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let key = stage.key("clocks");
    let (a, b, c) = (stage.locks().await?, stage.locks().await?, stage.locks().await?);
    let story = Story::default();
    let guard = a.lock(&*key).acquire().await?;
    story.enters("A", "has the lock, whose expiry the server counts,");
    for (name, other) in [("B", b), ("C", c)] {
        match other.lock(&*key).try_acquire().await? {
            Some(_) => story.enters(name, "has the lock"),
            None => {
                story.tell(name, "is told that the lock is held elsewhere, whatever its clock says")
            }
        }
    }
    match guard.release().await {
        Ok(()) => story.tell("A", "frees the lock, which is still its own"),
        Err(_) => story.fails("A could not free its lock"),
    }
    Ok(story)
}
