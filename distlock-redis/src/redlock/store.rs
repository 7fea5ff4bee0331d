//! Implements the core's traits of a store by majority.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::owner::Owner;
use distlock_core::store::{
    Answer, Attempt, DrivenBy, Entered, Entry, Exchange, Exchanged, Freed, Held, Listener, Message,
    Notification, Op, OpOn, Outage, ProcessDirectory, ProcessMessage, Records, Renewal, Renewed,
    Store, StoreStatus, WakeUps,
};

use super::quorum::QuorumStore;
use super::{acquire, queries, release, renew};

impl Store for QuorumStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { queries::ready(&self, answer_by).await })
    }

    fn is_notified(&self, lock: &LockName) -> bool {
        let notified = self.nodes.iter().filter(|node| node.store.is_notified(lock)).count();
        notified >= self.majority()
    }

    fn outage(&self) -> Option<Outage> {
        let mut outages: Vec<_> =
            self.nodes.iter().filter_map(|node| node.store.outage()).collect();
        // The outage began when a majority was no longer possible.
        let spare = self.nodes.len() - self.majority();
        outages.sort_unstable_by_key(|outage| outage.since);
        (outages.len() > spare).then(|| outages.swap_remove(spare))
    }

    fn listen(&self, process: &str, listener: Listener) {
        let listener: Arc<Listener> = Arc::new(listener);
        for node in self.nodes.iter() {
            // Weak, because the split votes own the nodes, and a node owns its listener.
            let (listener, split_votes) = (listener.clone(), Arc::downgrade(&self.split_votes));
            let both = move |notification: Notification<'_>| {
                if let Notification::WaiterBehind(Message { token, .. }) = notification
                    && let Some(split_votes) = split_votes.upgrade()
                {
                    split_votes.behind(token);
                }
                listener(notification);
            };
            node.store.listen(process, Box::new(both));
        }
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(acquire::try_acquire(self, attempt, answer_by))
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { acquire::enqueue(&self, entry, answer_by).await })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { release::release(&self, owner, keep, answer_by).await })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { renew::exchange(&self, exchange, answer_by).await })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { renew::renew(&self, renewals).await })
    }

    fn status(&self) -> StoreStatus {
        let all: Vec<_> = self.nodes.iter().map(|node| node.store.status()).collect();
        let enough = |is: &dyn Fn(&StoreStatus) -> bool| {
            all.iter().filter(|status| is(status)).count() >= self.majority()
        };
        let by_callers = all.iter().any(|status| status.driven_by == DrivenBy::Callers);
        StoreStatus {
            connected: enough(&|status| status.connected),
            wake_ups: match enough(&|status| status.wake_ups == WakeUps::Notified) {
                true => WakeUps::Notified,
                false => WakeUps::Polling,
            },
            driven_by: if by_callers { DrivenBy::Callers } else { DrivenBy::Manager },
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let times = self.answers(|node| node.ping(answer_by)).await?;
            Ok(times.into_iter().max().unwrap_or_default())
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { queries::inspect(&self, lock, answer_by).await })
    }
}

impl ProcessDirectory for QuorumStore {
    fn introduce(&self, itself: &ProcessInfo) {
        self.nodes.iter().for_each(|node| node.store.introduce(itself));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            let left = self.answers(|node| node.take_leave(process.clone(), answer_by)).await;
            left.map(|_| ())
        })
    }

    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move { queries::tell(&self, messages, answer_by).await })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let all = self.answers(|node| node.recorded(prefix.clone(), answer_by)).await?;
            let mut processes: Vec<_> = all.into_iter().flatten().collect();
            processes.sort_unstable();
            processes.dedup();
            Ok(processes)
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move { queries::records(&self, prefix, processes, answer_by).await })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        for node in self.nodes.iter() {
            node.store.clone().tell_taken(lock.clone(), token.clone());
        }
    }
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore")
            .field("nodes", &self.nodes.len())
            .field("up", &self.up().count())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
