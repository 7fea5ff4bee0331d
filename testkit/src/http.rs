//! A client of HTTP/1.1 that does nothing by itself, so that a test can stop in the middle of a
//! request or of a response.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Far more than any answer takes on a busy machine, so that reaching it means "never".
const BOUND: Duration = Duration::from_secs(60);

/// One connection, for one request after the other. Dropping it disconnects.
#[derive(Debug)]
pub struct HttpClient {
    stream: BufReader<TcpStream>,
    /// Of every request, each with its line's end.
    headers: String,
}

/// A response, or its beginning.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Empty until it was read.
    pub body: String,
}

impl HttpResponse {
    /// The first header of that name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }
}

impl HttpClient {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = in_time(TcpStream::connect(addr)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), headers: String::new() })
    }

    /// The same with one more header in every request.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Connects, asks, and disconnects.
    pub async fn once(addr: SocketAddr, method: &str, path: &str) -> Result<HttpResponse> {
        Self::connect(addr).await?.request(method, path, "").await
    }

    /// Asks, and reads all of the response.
    pub async fn request(&mut self, method: &str, path: &str, body: &str) -> Result<HttpResponse> {
        self.send(method, path, body).await?;
        let mut response = self.head().await?;
        while let Some(chunk) = self.chunk(&response).await? {
            response.body.push_str(&chunk);
            if response.header("transfer-encoding").is_none() {
                break;
            }
        }
        Ok(response)
    }

    /// Asks.
    pub async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let kind = if body.starts_with('{') { "content-type: application/json\r\n" } else { "" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}{}content-length: {}\r\n\r\n{body}",
            self.headers,
            body.len()
        );
        in_time(self.stream.write_all(request.as_bytes())).await
    }

    /// Asks, announces a body of `length` bytes, and sends only its beginning.
    pub async fn send_beginning(
        &mut self,
        path: &str,
        length: usize,
        beginning: &str,
    ) -> Result<()> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{}content-length: {length}\r\n\r\n{beginning}",
            self.headers,
        );
        in_time(self.stream.write_all(request.as_bytes())).await
    }

    /// Sends more of a body.
    pub async fn send_more(&mut self, more: &str) -> Result<()> {
        in_time(self.stream.write_all(more.as_bytes())).await
    }

    /// Reads a response up to its body.
    pub async fn head(&mut self) -> Result<HttpResponse> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| malformed("status"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(HttpResponse { status, headers, body: String::new() });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads a piece of a body; all of it if it does not come in pieces. `None` after the last one.
    pub async fn chunk(&mut self, head: &HttpResponse) -> Result<Option<String>> {
        let length = match head.header("content-length") {
            Some(length) => length.parse().map_err(|_| malformed("length"))?,
            None if head.header("transfer-encoding").is_none() => 0,
            None => {
                let size = self.line().await?;
                usize::from_str_radix(&size, 16).map_err(|_| malformed("chunk"))?
            }
        };
        let mut body = vec![0; length];
        in_time(self.stream.read_exact(&mut body)).await?;
        if head.header("transfer-encoding").is_some() {
            self.line().await?;
        }
        let body = String::from_utf8(body).map_err(|_| malformed("text"))?;
        Ok(Some(body).filter(|body| !body.is_empty()))
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if in_time(self.stream.read_line(&mut line)).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

async fn in_time<T>(io: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(BOUND, io).await.map_err(|_| Error::from(ErrorKind::TimedOut))?
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no HTTP response: {what}"))
}
