//! An authority of the test's own, and certificates from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process;

/// An authority that issues certificates, by the program `openssl`. Its directory is removed when this is
/// dropped.
#[derive(Debug)]
pub struct Certificates {
    dir: PathBuf,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// PEM of the certificate.
    pub cert: PathBuf,
    /// PEM of its private key.
    pub key: PathBuf,
    /// PEM of the authority's certificate.
    pub ca: PathBuf,
}

impl Certificates {
    /// A new authority, which only those trust that are configured to.
    pub fn new() -> Self {
        let dir = process::temp_path("certificates");
        fs::create_dir(&dir).expect("create a directory for certificates");
        let made = Self { dir };
        let (cert, key) = (made.file("ca.pem"), made.file("ca.key"));
        let subject = ["-subj", "/CN=an authority of a test", "-days", "30", "-out"];
        openssl(&made.dir, &["req", "-x509"], &NEW_KEY, &[&subject[..], &[&cert, "-keyout", &key]]);
        made
    }

    /// PEM of the authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A certificate for these names, written `DNS:localhost` or `IP:127.0.0.1`.
    pub fn issue(&self, name: &str, names: &[&str]) -> Certificate {
        self.issue_for(name, names, 30)
    }

    /// The same, expired yesterday.
    pub fn issue_expired(&self, name: &str, names: &[&str]) -> Certificate {
        self.issue_for(name, names, -1)
    }

    fn issue_for(&self, name: &str, names: &[&str], days: i32) -> Certificate {
        let [cert, key, request] =
            ["pem", "key", "csr"].map(|kind| self.file(&format!("{name}.{kind}")));
        let names = format!("subjectAltName={}", names.join(","));
        let subject = ["-subj", "/CN=a test", "-addext", &names, "-out", &request];
        openssl(&self.dir, &["req"], &NEW_KEY, &[&subject[..], &["-keyout", &key]]);
        let (ca, ca_key) = (self.file("ca.pem"), self.file("ca.key"));
        let days = days.to_string();
        let sign = ["x509", "-req", "-copy_extensions", "copy", "-days", &days, "-in", &request];
        openssl(&self.dir, &sign, &["-CA", &ca, "-CAkey", &ca_key, "-out", &cert], &[]);
        Certificate { cert: cert.into(), key: key.into(), ca: self.ca() }
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Small keys that are made at once.
const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

#[track_caller]
fn openssl(dir: &Path, command: &[&str], options: &[&str], more: &[&[&str]]) {
    let output = Command::new("openssl")
        .current_dir(dir)
        .args(command)
        .args(options)
        .args(more.concat())
        .stdin(Stdio::null())
        .output()
        .expect("openssl must be installed (scripts/test does it with apt-get)");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
