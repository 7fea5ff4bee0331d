//! An unlock that runs whether or not there was a lock.

use crate::stage::{Error, LONG, Redis, Stage, Story};

pub(crate) const TITLE: &str = "Unlocking in finally what was not locked";
pub(crate) const FLAW: &str = "\
The interceptor unlocks in `finally`, also when it did not get the lock.";

/// As taught: `try { if (lock()) body(); } finally { unlock(); }`.
async fn with_lock(
    redis: &Redis,
    key: &str,
    body: impl AsyncFnOnce() -> Result<(), Error>,
) -> Result<bool, Error> {
    let locked = redis.set_nx(key, "locked", LONG).await?;
    let outcome = if locked { body().await } else { Ok(()) };
    redis.ask::<()>(&["DEL", key]).await?;
    outcome.map(|()| locked)
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b, c) = (stage.redis().await?, stage.redis().await?, stage.redis().await?);
    let (story, key) = (Story::default(), stage.key("finally"));
    let body_of_a = async || {
        story.enters("A", "SET NX PX, has the lock");
        let body_of_b = async || {
            story.enters("B", "SET NX PX, has the lock");
            Ok(())
        };
        if !with_lock(&b, &key, body_of_b).await? {
            story.tell(
                "B",
                "does not get the lock, and unlocks in its `finally`: A's lock is deleted",
            );
        }
        let body_of_c = async || {
            story.enters("C", "SET NX PX, has the lock");
            Ok(())
        };
        with_lock(&c, &key, body_of_c).await?;
        Ok(())
    };
    with_lock(&a, &key, body_of_a).await?;
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (a, b, c) = (stage.locks().await?, stage.locks().await?, stage.locks().await?);
    let (story, key) = (Story::default(), stage.key("finally"));
    let body = async {
        story.enters("A", "has the lock");
        for (name, other) in [("B", b), ("C", c)] {
            match other.lock(&*key).run(async { story.enters(name, "has the lock") }).await {
                Err(error) if error.is_busy() => {
                    story.tell(
                        name,
                        "is told that the lock is held elsewhere: there is nothing to unlock",
                    );
                }
                other => other?,
            }
        }
        Ok::<_, Error>(())
    };
    a.lock(&*key).run(body).await??;
    Ok(story)
}
