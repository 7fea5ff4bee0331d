//! A network between client and server that can be slow, silent or broken.
//!
//! One thread that waits in `poll` for bytes, orders and due times: no hop between threads is added
//! to the delay, and `poll` counts in nanoseconds, so that a quarter of a millisecond is one.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::refusal::Refusal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What the network does with bytes. Connections are always accepted, except with [`Reset`](Self::Reset).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Hands them on.
    Pass,
    /// Hands them on after this time, in each direction.
    Delay(Duration),
    /// Takes this time for each kilobyte that a client sends.
    Narrow(Duration),
    /// Holds them back, on all connections, until the mode changes.
    Freeze,
    /// Holds them back on the connections there are now; new ones pass.
    FreezeExisting,
    /// Loses what clients send. A connection that lost bytes is reset when the mode changes: TCP
    /// does not go on after a hole.
    DropUp,
    /// Loses what the server answers; else as [`DropUp`](Self::DropUp).
    DropDown,
    /// Hands on this many more bytes of the server's answers on every connection, and resets it.
    CutDown(usize),
    /// Resets all connections, and every new one.
    Reset,
}

/// A TCP proxy in front of one server. Ends, with all its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    orders: Sender<Order>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    /// Answered when the mode holds.
    Set(Mode, Sender<()>),
    /// Answered when it is in force.
    Refuse(Option<Refusal>, Sender<()>),
    Stop,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and hands everything on to `server`.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind the proxy");
        listener.set_nonblocking(true).expect("set a socket up");
        let addr = listener.local_addr().expect("the proxy's address");
        let (bell, wake) = UnixStream::pair().expect("a pair of sockets");
        wake.set_nonblocking(true).expect("set a socket up");
        let (orders, inbox) = mpsc::channel();
        let (new, links, refusal) = (Mode::Pass, Vec::new(), None);
        let network = Network { listener, server, wake, inbox, new, links, refusal };
        let thread = thread::Builder::new()
            .name("proxy".into())
            .spawn(move || network.run())
            .expect("start the proxy's thread");
        Self { addr, orders, bell, thread: Some(thread) }
    }

    /// Changes what the network does; in force when this returns.
    pub fn set(&self, mode: Mode) {
        let (done, in_force) = mpsc::channel();
        self.order(Order::Set(mode, done));
        in_force.recv().expect("the proxy's thread runs");
    }

    /// Has these scripts refused from now on, on all connections; with `None`, none.
    pub fn refuse(&self, refusal: Option<Refusal>) {
        let (done, in_force) = mpsc::channel();
        self.order(Order::Refuse(refusal, done));
        in_force.recv().expect("the proxy's thread runs");
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a server without a password behind it; else see `RedisServer::url_at`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the proxy's thread runs");
        (&self.bell).write_all(&[0]).expect("wake the proxy's thread");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have panicked; then there is nothing to stop.
        let _ = self.orders.send(Order::Stop);
        let _ = (&self.bell).write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Network {
    listener: TcpListener,
    server: SocketAddr,
    wake: UnixStream,
    inbox: Receiver<Order>,
    /// The mode of connections to come.
    new: Mode,
    links: Vec<Link>,
    refusal: Option<Refusal>,
}

/// One client's connection and the one made for it to the server.
struct Link {
    client: TcpStream,
    server: TcpStream,
    up: Flow,
    down: Flow,
    mode: Mode,
}

/// Bytes under way in one direction.
#[derive(Default)]
struct Flow {
    /// When each piece arrived, or would have over a narrow line; an empty one stands for the end of
    /// the stream.
    pieces: VecDeque<(Instant, Vec<u8>)>,
    /// When a narrow line is through with what came before.
    through: Option<Instant>,
    /// How much of the first piece is through.
    sent: usize,
    /// The receiver takes no more just now.
    blocked: bool,
    /// The sender has ended the stream.
    ended: bool,
    /// The end was handed on.
    closed: bool,
    /// Bytes were lost.
    torn: bool,
    /// How many bytes are handed on before the connection is reset.
    cut_after: Option<usize>,
    /// Which scripts a client does not get through.
    refusal: Option<Refusal>,
    /// The beginning of a command whose end has not arrived, where scripts are refused.
    partial: Vec<u8>,
}

/// What a mode means for one direction.
#[derive(Clone, Copy)]
enum Fate {
    After(Duration),
    Hold,
    Lose,
}

impl Network {
    fn run(mut self) {
        // The kernel may wake a sleeper 50 µs late by default: a fifth of the shortest delay used.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        loop {
            self.wait();
            while let Ok(order) = self.inbox.try_recv() {
                match order {
                    Order::Stop => return,
                    Order::Set(mode, done) => {
                        self.set(mode);
                        let _ = done.send(());
                    }
                    Order::Refuse(refusal, done) => {
                        let links = &mut self.links;
                        links.iter_mut().for_each(|link| link.up.refusal = refusal.clone());
                        self.refusal = refusal;
                        let _ = done.send(());
                    }
                }
            }
            self.accept();
            self.links.retain_mut(|link| {
                let alive = link.carry().is_ok();
                if !alive {
                    link.reset();
                }
                alive && !link.finished()
            });
        }
    }

    /// Sleeps until something can be read, or written at last, or is due.
    fn wait(&self) {
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        for link in &self.links {
            link.up.watch(&link.client, &link.server, &mut fds);
            link.down.watch(&link.server, &link.client, &mut fds);
        }
        let due = self.links.iter().filter_map(Link::due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec::try_from(left).expect("a delay fits"));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("poll: {e}"),
        }
        while (&self.wake).read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    }

    fn set(&mut self, mode: Mode) {
        let existing = if mode == Mode::FreezeExisting { Mode::Freeze } else { mode };
        self.new = if mode == Mode::FreezeExisting { Mode::Pass } else { mode };
        self.links.retain_mut(|link| {
            let torn = link.mode != existing && (link.up.torn || link.down.torn);
            if torn || existing == Mode::Reset {
                link.reset();
                return false;
            }
            link.enter(existing);
            true
        });
    }

    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            // A server that is down is a connection reset: the proxy itself never refuses.
            let server = match self.new {
                Mode::Reset => None,
                _ => TcpStream::connect_timeout(&self.server, Duration::from_secs(1)).ok(),
            };
            match server {
                Some(server) => {
                    let mut link = Link::new(client, server, self.new);
                    link.up.refusal = self.refusal.clone();
                    self.links.push(link);
                }
                None => linger_zero(&client),
            }
        }
    }
}

impl Link {
    fn new(client: TcpStream, server: TcpStream, mode: Mode) -> Self {
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("set a socket up");
            stream.set_nonblocking(true).expect("set a socket up");
        }
        let mut link = Self { client, server, up: Flow::default(), down: Flow::default(), mode };
        link.enter(mode);
        link
    }

    fn enter(&mut self, mode: Mode) {
        self.mode = mode;
        self.down.cut_after = match mode {
            Mode::CutDown(bytes) => Some(bytes),
            _ => None,
        };
    }

    fn fates(&self) -> (Fate, Fate) {
        let pass = Fate::After(Duration::ZERO);
        match self.mode {
            Mode::Pass | Mode::Reset | Mode::FreezeExisting | Mode::CutDown(_) => (pass, pass),
            Mode::Narrow(_) => (pass, pass),
            Mode::Delay(time) => (Fate::After(time), Fate::After(time)),
            Mode::Freeze => (Fate::Hold, Fate::Hold),
            Mode::DropUp => (Fate::Lose, pass),
            Mode::DropDown => (pass, Fate::Lose),
        }
    }

    /// Takes in what has arrived, and hands on what is due.
    fn carry(&mut self) -> io::Result<()> {
        let (up, down) = self.fates();
        let per_kilobyte = match self.mode {
            Mode::Narrow(time) => time,
            _ => Duration::ZERO,
        };
        self.up.take_in(&self.client, per_kilobyte);
        self.up.carry(&self.server, up)?;
        self.down.take_in(&self.server, Duration::ZERO);
        self.down.carry(&self.client, down)
    }

    fn due(&self) -> Option<Instant> {
        let (up, down) = self.fates();
        self.up.due(up).into_iter().chain(self.down.due(down)).min()
    }

    fn finished(&self) -> bool {
        self.up.closed && self.down.closed
    }

    /// Makes the close that follows a reset for both ends.
    fn reset(&self) {
        linger_zero(&self.client);
        linger_zero(&self.server);
    }
}

impl Flow {
    fn watch<'fd>(&self, from: &'fd TcpStream, to: &'fd TcpStream, fds: &mut Vec<PollFd<'fd>>) {
        if !self.ended {
            fds.push(PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN));
        }
        if self.blocked {
            fds.push(PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT));
        }
    }

    fn carry(&mut self, to: &TcpStream, fate: Fate) -> io::Result<()> {
        match fate {
            Fate::Hold => Ok(()),
            Fate::Lose => {
                self.torn |= !self.pieces.is_empty();
                self.pieces.clear();
                Ok(())
            }
            Fate::After(delay) => self.hand_on(to, delay),
        }
    }

    fn take_in(&mut self, mut from: &TcpStream, per_kilobyte: Duration) {
        let mut buffer = [0; 16 * 1024];
        while !self.ended {
            match from.read(&mut buffer) {
                Ok(n) => {
                    self.ended = n == 0;
                    let now = Instant::now();
                    let begins = self.through.map_or(now, |through| through.max(now));
                    let arrived = begins + per_kilobyte.mul_f64(n as f64 / 1024.0);
                    self.through = (!per_kilobyte.is_zero()).then_some(arrived);
                    let piece = match &self.refusal {
                        Some(refusal) if n > 0 => refusal.rewrite(&mut self.partial, &buffer[..n]),
                        _ => buffer[..n].to_vec(),
                    };
                    // An empty piece would be the end of the stream.
                    if n == 0 || !piece.is_empty() {
                        self.pieces.push_back((arrived, piece));
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A reset ends the stream, too, and must not overtake what is held back.
                Err(_) => {
                    self.ended = true;
                    self.pieces.push_back((Instant::now(), Vec::new()));
                }
            }
        }
    }

    fn hand_on(&mut self, mut to: &TcpStream, delay: Duration) -> io::Result<()> {
        self.blocked = false;
        let now = Instant::now();
        while let Some((arrived, bytes)) = self.pieces.front() {
            if *arrived + delay > now {
                return Ok(());
            }
            if bytes.is_empty() {
                self.closed = true;
                // The other end may be gone already.
                let _ = to.shutdown(Shutdown::Write);
            }
            let end = self.cut_after.map_or(bytes.len(), |left| bytes.len().min(self.sent + left));
            while self.sent < end {
                match to.write(&bytes[self.sent..end]) {
                    Ok(n) => {
                        self.sent += n;
                        self.cut_after = self.cut_after.map(|left| left - n);
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        self.blocked = true;
                        return Ok(());
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            if self.cut_after == Some(0) {
                return Err(ErrorKind::ConnectionReset.into());
            }
            self.sent = 0;
            self.pieces.pop_front();
        }
        Ok(())
    }

    fn due(&self, fate: Fate) -> Option<Instant> {
        let (arrived, _) = self.pieces.front()?;
        match fate {
            Fate::After(delay) if !self.blocked => Some(*arrived + delay),
            _ => None,
        }
    }
}

fn linger_zero(stream: &TcpStream) {
    // It fails only on a socket that is gone already.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
