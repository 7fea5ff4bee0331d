//! Holders, one of which is killed, and the waiters behind them.

use std::time::Duration;

use distlock::{LockError, LockManager};

use crate::served::epoch_ms;
use crate::subject::{Taking, request};
use crate::{Scenario, next_line, start};

/// So long a holder is believed to be alive.
const TTL: Duration = Duration::from_secs(1);
/// So many processes hold the lock; the next one waits for it.
const HOLDERS: usize = 3;

/// `crash`: readers and a writer. `crashsem`: as many permits as holders, all of them taken.
pub(crate) async fn crash(manager: &LockManager, scenario: &Scenario) -> Result<(), LockError> {
    let (holds, waits) = match scenario.mode.as_str() {
        "crash" => (Taking::Read, Taking::Write),
        _ => (Taking::Permit(HOLDERS as u32), Taking::Permit(HOLDERS as u32)),
    };
    if scenario.process < HOLDERS {
        let held = request(manager, "hot", holds).ttl(TTL).acquire().await?;
        start();
        // The other readers leave when the first is killed. Those with a permit stay.
        next_line();
        held.release().await?;
        println!(r#"{{"locks": 1, "per_task": [1]}}"#);
        return Ok(());
    }
    start();
    let guard = request(manager, "hot", waits).ttl(TTL).acquire().await?;
    let at = epoch_ms();
    guard.release().await?;
    println!(r#"{{"locks": 1, "per_task": [1], "in_at": {at}}}"#);
    Ok(())
}
