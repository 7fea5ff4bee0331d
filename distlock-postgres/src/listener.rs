//! The connection that listens: messages for one process.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Connection, connect};
use crate::fault::Fault;
use crate::link::Link;
use crate::select::race;
use crate::shared::Shared;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection behind a pooler takes `LISTEN` and hears nothing: it is asked for again so much later.
const DEAF_PAUSE: Duration = Duration::from_secs(60);
/// How long an echo may take.
const ECHO: Duration = Duration::from_secs(2);
/// How often it is seen whether the connection is still there.
const CHECK: Duration = Duration::from_secs(10);

/// What is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// What a process or the server has sent.
    Text(&'a str),
    /// Listening began or ended: messages may have been missed.
    Interrupted,
    /// The server lets commands through and no messages.
    Denied(&'a str),
}

type Handler = Box<dyn Fn(Message<'_>) + Send + Sync>;

/// Listens for one process.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    /// Over which the echo is sent: another connection, or a pooler would pass.
    lane: Arc<Link>,
    process: OnceLock<(String, Handler)>,
    listening: AtomicBool,
    echoed: Notify,
}

impl Listener {
    pub(crate) fn new(shared: Arc<Shared>, lane: Arc<Link>) -> Self {
        let (process, listening) = (OnceLock::new(), AtomicBool::new(false));
        Self { shared, lane, process, listening, echoed: Notify::new() }
    }

    pub(crate) fn start(self: &Arc<Self>, process: &str, on: Handler, handle: &Handle) {
        let is_first = self.process.set((process.to_owned(), on)).is_ok();
        if is_first && self.shared.address.listens {
            handle.spawn(self.clone().supervise());
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    fn process(&self) -> &str {
        self.process.get().map_or("", |(process, _)| process)
    }

    fn on(&self, message: Message<'_>) {
        match (message, self.process.get()) {
            (Message::Text("echo"), _) => self.echoed.notify_one(),
            (message, Some((_, on))) => on(message),
            (_, None) => {}
        }
    }

    async fn supervise(self: Arc<Self>) {
        let (mut pause, mut was_denied) = (FIRST_PAUSE, false);
        loop {
            self.lane.until_up().await;
            let heard = self.session().await;
            self.shared.direct.send_replace(false);
            if self.listening.swap(false, Ordering::AcqRel) {
                self.on(Message::Interrupted);
                (pause, was_denied) = (FIRST_PAUSE, false);
            }
            if let Err(deaf @ (Deaf::Pooled | Deaf::Refused)) = heard {
                if !std::mem::replace(&mut was_denied, true) {
                    self.on(Message::Denied(deaf.words()));
                }
                pause = DEAF_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, listens, and receives until the connection ends.
    async fn session(self: &Arc<Self>) -> Result<(), Deaf> {
        let connected = timeout(self.shared.connect_timeout, connect(&self.shared.address)).await;
        let (client, connection) =
            connected.map_err(|_| Deaf::Lost)?.map_err(|fault| Deaf::of(&fault))?;
        let work = async {
            timeout(self.shared.connect_timeout, self.subscribe(&client))
                .await
                .unwrap_or(Err(Deaf::Lost))?;
            self.listening.store(true, Ordering::Release);
            self.shared.direct.send_replace(true);
            self.on(Message::Interrupted);
            loop {
                sleep(CHECK).await;
                match timeout(CHECK, client.batch_execute("SELECT 1")).await {
                    Ok(Ok(())) => {}
                    _ => return Err(Deaf::Lost),
                }
            }
        };
        race(work, self.receive(connection)).await.unwrap_or(Ok(()))
    }

    /// Hands on what is heard, and moves the bytes of what is sent.
    async fn receive(&self, mut connection: Connection) {
        poll_fn(|cx| {
            loop {
                match connection.poll_message(cx) {
                    Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                        self.on(Message::Text(notification.payload()));
                    }
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    async fn subscribe(&self, client: &Client) -> Result<(), Deaf> {
        let deaf = |error: tokio_postgres::Error| Deaf::of(&Fault::of(&error));
        let channel = format!("distlock_{}", self.process());
        // A process is named in digits and small letters.
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await.map_err(deaf)?;
        let echo = async {
            let live = self.lane.live().await.map_err(|fault| Deaf::of(&fault))?;
            let echo = [(self.process(), "echo".to_owned())];
            live.send(&echo).await.map_err(|fault| Deaf::of(&fault))
        };
        echo.await?;
        if timeout(ECHO, self.echoed.notified()).await.is_err() {
            return Err(Deaf::Pooled);
        }
        // Held as long as the session lives: so others see that this process listens. After the echo: a
        // pooler would keep it for others.
        const LIVES: &str = "SELECT pg_advisory_lock(hashtextextended($1, 7233187398472430595))";
        let process = self.process();
        client.query_typed(LIVES, &[(&process, Type::TEXT)]).await.map(|_| ()).map_err(deaf)
    }
}

/// Why nothing is heard.
enum Deaf {
    Lost,
    Pooled,
    Refused,
}

impl Deaf {
    fn of(fault: &Fault) -> Self {
        if fault.passing { Self::Lost } else { Self::Refused }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Lost => "the connection was lost",
            Self::Pooled => {
                "LISTEN has no effect, as behind a pooler that gives each transaction to another connection"
            }
            Self::Refused => "the server refused LISTEN",
        }
    }
}
