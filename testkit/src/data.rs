//! Connections to what locks protect.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection of the test's own to the data at `url`. A command may take long on it: the data is
/// not what is under test. Panics if nobody answers there.
pub async fn data_at(url: &str) -> MultiplexedConnection {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("connect")
}
