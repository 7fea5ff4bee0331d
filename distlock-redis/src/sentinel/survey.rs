//! Asks each sentinel of a primary, over a connection of its own; for tools.

use std::sync::Arc;

use redis::{AsyncConnectionConfig, ConnectionAddr, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::connect::connect;
use crate::sentinel::primary::Place;
use crate::sentinel::sentinels::{ANSWER, Sentinels, at_sentinel};
use distlock_core::select::until;
use distlock_core::store::Fault;

/// A sentinel's answer to each question, or the reason why it could not be asked.
pub(crate) type Surveyed = (String, Result<Vec<Value>, Fault>);

impl Sentinels {
    /// Asks every known sentinel about the primary, and whether there are enough sentinels for a failover. A
    /// sentinel that hangs does not delay the others.
    pub(crate) async fn survey(self: &Arc<Self>) -> Vec<Surveyed> {
        let places = self.places();
        let mut asked = JoinSet::new();
        for place in places {
            let sentinels = self.clone();
            asked.spawn(async move {
                let name = format!("{}:{}", place.host, place.port);
                let said = timeout(2 * ANSWER, sentinels.question(place)).await;
                (name, said.unwrap_or_else(|_| Err(Fault::timed_out())))
            });
        }
        let mut surveyed = asked.join_all().await;
        surveyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        surveyed
    }

    async fn question(&self, place: Place) -> Result<Vec<Value>, Fault> {
        // All sentinels have the same user and password.
        let seed = self.seeds.first().ok_or_else(crate::connection::error::unexpected)?;
        let info = seed.clone().set_addr(ConnectionAddr::Tcp(place.host, place.port));
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = connect(&info, self.tls.as_deref(), config).await;
        let (connection, driver) =
            connected.map_err(|error| at_sentinel(crate::connection::error::fault(&error)))?;
        let asked = async {
            let mut connection = connection;
            let mut questions = redis::Pipeline::with_capacity(2);
            questions.cmd("SENTINEL").arg("MASTER").arg(&self.name);
            questions.cmd("SENTINEL").arg("CKQUORUM").arg(&self.name);
            let answers = connection.send_packed_commands(&questions, 0, 2).await;
            answers.map_err(|error| at_sentinel(crate::connection::error::fault(&error)))
        };
        // The connection closes when its driver is dropped.
        until(asked, driver).await.unwrap_or_else(|| Err(Fault::timed_out()))
    }
}
