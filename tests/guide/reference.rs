//! The pages that list everything do so: settings and messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/guide").join(name)).expect("a page")
}

/// The sources of every crate that users have, and their macros.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = fs::read_dir(root())
        .expect("the repository")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| path.join("src"))
        .filter(|path| {
            path.components()
                .any(|part| part.as_os_str().to_string_lossy().starts_with("distlock-"))
        })
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a text");
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 200, "only {} sources", found.len());
    found
}

/// The names in the first column of its tables.
fn rows(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn fw10_every_feature_is_on_the_page_of_settings() {
    let page = page("settings.md");
    let rows = rows(&page);
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let (_, features) = manifest.split_once("\n[features]\n").expect("the features");
    let features = features.split("\n[").next().expect("their end");
    let names: Vec<_> = features
        .lines()
        .filter_map(|line| Some(line.split_once(" = [")?.0))
        .filter(|name| *name != "default")
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(rows.contains(name), "settings.md has no row for the feature `{name}`");
    }
}

#[test]
fn fw10_every_environment_variable_is_on_the_page_of_settings() {
    // How the program tells a command of itself, and its own tests.
    let ours = ["DISTLOCK_GIVEN_URL", "DISTLOCK_STORE", "DISTLOCK_CLI_ROUNDS"];
    let page = page("settings.md");
    let rows = rows(&page);
    let mut found = BTreeSet::new();
    for (_, text) in sources() {
        for (at, _) in text.match_indices("DISTLOCK_") {
            let name = &text[at..];
            let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
            let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
            found.insert(name[..end].to_owned());
        }
    }
    found.retain(|name| name.len() > "DISTLOCK_".len() && !ours.contains(&name.as_str()));
    assert!(found.len() >= 9, "{found:?}");
    for name in found {
        assert!(rows.contains(name.as_str()), "settings.md has no row for `{name}`");
    }
}

#[test]
fn fw10_every_setting_of_a_manager_is_on_the_page_of_settings() {
    let page = page("settings.md");
    let rows = rows(&page);
    let mut found = 0;
    for (path, text) in sources() {
        let path = path.to_string_lossy();
        if !path.contains("distlock-runtime/src/builder") {
            continue;
        }
        let mut before = "";
        for line in text.lines() {
            let is_hidden = std::mem::replace(&mut before, line).trim() == "#[doc(hidden)]";
            let Some(rest) = line.strip_prefix("    pub fn ") else { continue };
            let name = rest.split(['(', '<']).next().expect("a name");
            if name == "build" || is_hidden {
                continue;
            }
            assert!(rows.contains(name), "settings.md has no row for the builder's `{name}`");
            found += 1;
        }
    }
    assert!(found >= 20, "only {found} settings");
}

/// The text of a source, as a program prints it: literals that go over several lines are one.
fn joined(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        match line.strip_suffix('\\') {
            Some(line) => {
                text.push_str(if text.ends_with('\n') { line } else { line.trim_start() })
            }
            None => {
                text.push_str(if text.ends_with('\n') { line } else { line.trim_start() });
                text.push('\n');
            }
        }
    }
    text
}

#[test]
fn fw10_every_message_on_the_page_of_troubleshooting_is_one_that_is_printed() {
    let page = page("troubleshooting.md");
    let sources: Vec<_> = sources().iter().map(|(_, source)| joined(source)).collect();
    let is_printed = |text: &str| sources.iter().any(|source| source.contains(text));
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## `")).collect();
    assert!(headings.len() >= 18, "only {} messages", headings.len());
    for heading in headings {
        let text = heading.strip_suffix('`').expect("the end of a message");
        assert!(is_printed(text), "nothing prints {text:?}");
    }
    let (_, reasons) = page.split_once("| reason |").expect("the reasons of `Lost`");
    let reasons = reasons.split("\n\n").next().expect("the end of the table");
    let reasons: Vec<_> = reasons.lines().skip(2).filter_map(|row| row.split('|').nth(1)).collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for reason in reasons {
        assert!(is_printed(reason.trim()), "no lock is lost because {reason:?}");
    }
}

/// What replaces it keeps code, time and source of the status; see the page on gRPC and tower.
#[test]
fn fw4_no_page_advises_to_make_a_status_by_hand() {
    let pages = ["docs/guide/web.md", "src/redis_lock_web.md", "src/redis_lock.md"];
    let mut texts: Vec<_> = pages
        .iter()
        .map(|page| (root().join(page), fs::read_to_string(root().join(page)).expect("a page")))
        .collect();
    texts.extend(sources());
    for (path, text) in texts {
        let by_hand =
            ["Status::aborted(", "Use the attribute there, with `map_err`", "with `map_err`. Any"];
        for words in by_hand {
            assert!(!text.contains(words), "{}: {words}", path.display());
        }
    }
    let guide = page("grpc_tower.md");
    for words in ["`Result<_, Status>` needs nothing else", "Infallible", "# A tower service"] {
        assert!(guide.contains(words), "{words}");
    }
}

#[test]
fn fs2_the_page_of_guarantees_tells_of_machines_that_stand_still() {
    let page = page("guarantees.md");
    let (_, second) = page.split_once("# 2. No body outlives its lease").expect("the promise");
    let second = second.split("\n# ").next().expect("its end");
    let (_, breaks) = second.split_once("**What breaks it.**").expect("what breaks it");
    assert!(breaks.contains("hypervisor") && breaks.contains("clock"), "{breaks}");
}

#[test]
fn fw11_the_first_version_is_one_list_and_claims_what_is_there() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    let first = changelog.rsplit("\n## [").next().expect("a version");
    assert!(
        !first.contains("### Fixed") && !first.contains("**Changed:**"),
        "nothing was released"
    );
    assert_eq!(first.matches("### ").count(), 1, "one list");
    // Twelve wrong ways, as on their page.
    assert!(first.contains("twelve locks of tutorials"), "how many wrong ways?");
}

/// As long as the store has no TLS, nothing may say that it has all that Redis has.
#[test]
fn fs3_the_changelog_does_not_claim_what_a_store_lacks() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    let stores = page("stores.md");
    assert!(!changelog.contains("everything that locks on Redis have"));
    for store in ["etcd", "ZooKeeper"] {
        let (_, section) = stores.split_once(&format!("\n# {store}\n")).expect("its section");
        let section = section.split("\n# ").next().expect("its end");
        let has_none = ["TLS are not supported", "TLS and Kerberos are not"]
            .iter()
            .any(|words| section.contains(words));
        let is_said = changelog.contains(&format!("{store} is reached without TLS"));
        assert!(is_said || !has_none, "{store} has no TLS, and the changelog does not say so");
    }
}
