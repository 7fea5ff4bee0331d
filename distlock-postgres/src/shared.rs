//! What all connections of a table share, and the state of each.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::address::Address;
use crate::fence::Fence;
use crate::select::either;

/// A connection that owes an answer is given so long for any.
const SILENCE: Duration = Duration::from_secs(1);
/// So many commands in a row without an answer in time, and it is left.
const MANY_SILENT: u32 = 2;

/// What all connections of a table share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) connect_timeout: Duration,
    pub(crate) fence: Fence,
    /// Connections are numbered as they are made.
    pub(crate) numbers: AtomicU64,
    /// Messages come through: no pooler gives each transaction another connection.
    pub(crate) direct: watch::Sender<bool>,
}

/// The state of one connection, as its commands see it.
#[derive(Default)]
pub(crate) struct Health {
    silent: AtomicU32,
    suspected: Notify,
    bad: Notify,
}

impl Health {
    /// An answer has come.
    pub(crate) fn answered(&self) {
        self.silent.store(0, Ordering::Release);
    }

    /// An answer has not come in time.
    pub(crate) fn missed(&self) {
        match self.silent.fetch_add(1, Ordering::AcqRel) + 1 {
            MANY_SILENT => self.bad.notify_one(),
            _ => self.suspected.notify_one(),
        }
    }

    pub(crate) fn is_bad(&self) {
        self.bad.notify_one();
    }

    /// Resolves when the connection is to be left.
    pub(crate) async fn gone_bad(&self) {
        let silence = async {
            loop {
                self.suspected.notified().await;
                tokio::time::sleep(SILENCE).await;
                if self.silent.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        };
        either(self.bad.notified(), silence).await;
    }
}
