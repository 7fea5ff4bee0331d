//! A network that sees every byte that passes, may change it, and can be cut.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// A proxy that asks a closure about each piece that passes. It ends with the test's process.
pub(crate) struct Tap {
    addr: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Tap {
    /// `see` is given the number of the connection and a piece of bytes, and may answer with others
    /// that are to be handed on instead.
    pub(crate) fn before(
        server: SocketAddr,
        see: impl Fn(usize, Way, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let addr = listener.local_addr().expect("an address");
        let (open, see) = (Arc::new(Mutex::new(Vec::new())), Arc::new(see));
        let streams = open.clone();
        thread::spawn(move || {
            for number in 0.. {
                let Ok((client, _)) = listener.accept() else { return };
                // A server that is gone is a connection that ends at once.
                let Ok(server) = TcpStream::connect(server) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("set a socket up");
                    lock(&streams).push(stream.try_clone().expect("a handle"));
                }
                let back = (server.try_clone().expect("one"), client.try_clone().expect("one"));
                for (way, (from, to)) in [(Way::Up, (client, server)), (Way::Down, back)] {
                    let see = see.clone();
                    thread::spawn(move || carry(from, to, |bytes| see(number, way, bytes)));
                }
            }
        });
        Self { addr, open }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Ends all connections that there are. New ones pass.
    pub(crate) fn cut(&self) {
        for stream in lock(&self.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(mut from: TcpStream, mut to: TcpStream, see: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let instead = see(&bytes[..n]);
        if to.write_all(instead.as_deref().unwrap_or(&bytes[..n])).is_err() {
            break;
        }
    }
    // One end is gone: so is the other.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Whether `bytes` contain `word`.
pub(crate) fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}
