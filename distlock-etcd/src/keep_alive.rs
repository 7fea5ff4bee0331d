//! What goes on beside all calls: waiters are kept alive.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::client::Queues;
use crate::connection::{Link, Settings, Watch};
use crate::fence::Fence;
use crate::lease::Leases;
use crate::ordering::Sequence;
use crate::waiters::Places;
use crate::watch::Message;

/// How often the waiters to be kept alive are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(1);

impl Queues {
    /// Starts on a runtime with I/O and timers: the connection is made on first use. `on` gets what is
    /// seen, `watch` whether it is connected.
    pub fn start(
        settings: Settings,
        handle: &Handle,
        watch: Watch,
        on: impl Fn(Message<'_>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let link = Link::start(settings, handle, watch, Box::new(on));
        let (fence, leases, places) = (Fence::default(), Leases::new(), Places::default());
        let (sequence, handle) = (Sequence::default(), handle.clone());
        let record = std::sync::Mutex::default();
        let queues = Arc::new(Self { link, fence, leases, places, sequence, handle, record });
        queues.handle.spawn(tend(Arc::downgrade(&queues)));
        queues
    }
}

async fn tend(queues: Weak<Queues>) {
    loop {
        sleep(LOOK).await;
        let Some(queues) = queues.upgrade() else { return };
        let due = queues.places.due(Instant::now());
        let Some(live) = queues.link.up().filter(|_| !due.is_empty()) else { continue };
        let leases: Vec<_> = due.iter().map(|(_, lease)| *lease).collect();
        match timeout(ANSWER, queues.keep_alive(&live, &leases)).await {
            Ok(Ok(alive)) => {
                // A place that is gone is taken again by the waiter that looks for it.
                let gone = due.iter().zip(alive).filter(|(_, alive)| !alive);
                for ((whose, _), _) in gone {
                    queues.link.tell(Message::Turn(&whose.name, &whose.token));
                }
            }
            Ok(Err(_)) => {}
            Err(_) => live.missed(),
        }
    }
}
