//! What is packed with each published crate.

use std::fs;
use std::path::Path;
use std::process::Command;

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Both licences ask for their text to come with every copy.
/// Fault: FO5.
#[test]
fn every_published_crate_has_the_texts_of_both_licences() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = Command::new(root.join("scripts/release")).arg("--crates").output();
    let crates = String::from_utf8(crates.expect("a list").stdout).expect("names");
    assert!(crates.lines().count() >= 7, "{crates}");
    for name in crates.lines() {
        let mut list = Command::new(env!("CARGO"));
        list.current_dir(root);
        list.args(["package", "--list", "--allow-dirty", "--offline", "-p", name]);
        let list = list.output().expect("run cargo");
        let files = String::from_utf8_lossy(&list.stdout);
        assert!(list.status.success(), "{name}: {}", String::from_utf8_lossy(&list.stderr));
        let folder = if name == "distlock" { root.to_owned() } else { root.join(name) };
        for licence in LICENCES {
            assert!(files.lines().any(|file| file == licence), "{name} has no {licence}:\n{files}");
            let text = |path: &Path| fs::read_to_string(path).expect("a licence");
            assert_eq!(text(&folder.join(licence)), text(&root.join(licence)), "{name}");
        }
    }
}
