//! Checks of the structure of the product's sources.
//!
//! Where the sources do not meet a rule yet, the limit of its check is the number of violations. Nothing may raise a
//! limit. To list the violations of one crate, ignoring the limits, name the crate:
//!
//! ```text
//! DISTLOCK_CRATE=distlock-redis cargo test -p distlock-structure circle
//! ```

mod architecture;
mod declarations;
mod dependencies;
mod functions;
mod imports;
mod source;

use std::collections::BTreeMap;

use source::Crate;

/// The most files that may implement one type.
const MOST_FILES_OF_A_TYPE: usize = 3;
/// The most declarations of one type name.
const MOST_DECLARATIONS: usize = 2;
/// A file with fewer lines needs a reason.
const SMALL: usize = 60;

/// Types that are implemented in more than three files: `LockManager`, whose methods for operators and for leaders are
/// beside what they are about, and which generated code takes by a trait.
const SCATTERED_TYPES: usize = 1;
/// Type names that are declared more than twice.
const AMBIGUOUS_NAMES: usize = 0;
/// Conditions for features and platforms.
const CFGS: usize = 90;
/// Comments that begin with "What".
const WHAT: usize = 79;

/// Small files, and why they are files of their own.
const REASONS: &[(&str, &str)] = &[
    (
        "distlock-cli/src/run/platform.rs",
        "a platform: the differences between Linux and other systems",
    ),
    ("distlock-core/src/line/release.rs", "one rule of the protocol, R7, in full"),
    ("distlock-platform/src/clock.rs", "a platform: Unix"),
    ("distlock-platform/src/clock_elsewhere.rs", "a platform: systems that are not Unix"),
    ("distlock-postgres/src/no_tls.rs", "replaces `tls.rs` without the feature `tls`"),
    ("distlock-postgres/src/schema.rs", "belongs to a script, `schema.sql`"),
    ("distlock-redis/src/connection/tls_off.rs", "replaces `tls.rs` without the feature `tls`"),
    ("distlock-runtime/src/observe/probe.rs", "a trait, which the test kit implements"),
    ("distlock-runtime/src/stores/etcd.rs", "one file for each store that a URL names"),
    ("distlock-runtime/src/stores/tls_off.rs", "replaces `tls.rs` without the feature `tls`"),
    ("distlock-runtime/src/stores/zookeeper.rs", "one file for each store that a URL names"),
    ("src/assert_held.rs", "a public macro"),
    ("src/prelude.rs", "a public module of re-exports"),
];

/// Fails if there are more violations than the limit; any, if only one crate is checked.
#[track_caller]
fn check(violations: &[String], limit: usize) {
    check_number(violations.len(), violations, limit);
}

#[track_caller]
fn check_number(number: usize, violations: &[String], limit: usize) {
    let limit = if source::only().is_some() { 0 } else { limit };
    assert!(number <= limit, "{number} violations, at most {limit}:\n{}", violations.join("\n"));
}

#[test]
fn no_circle_of_files() {
    check_circles(|files| files, 0);
}

#[test]
fn no_circle_of_folders() {
    check_circles(|files| imports::between_folders(&files), 0);
}

#[track_caller]
fn check_circles(parts: impl Fn(imports::Edges) -> imports::Edges, limit: usize) {
    let mut circles = Vec::new();
    let mut number = 0;
    for of in Crate::selected() {
        let files = imports::between_files(&of);
        assert!(!files.is_empty() || of.files.len() < 5, "{}: no import was found", of.name);
        let edges = parts(files);
        for circle in imports::circles(&edges) {
            number += circle.len();
            circles.push(format!("{}:\n{}", of.name, imports::describe(&edges, &circle)));
        }
    }
    check_number(number, &circles, limit);
}

#[test]
fn no_function_is_too_long() {
    let mut long = Vec::new();
    for of in Crate::selected() {
        for source in of.files.values() {
            for (line, length) in functions::too_long(&source.text) {
                long.push(format!("{}:{line} has {length} lines", of.path(source)));
            }
        }
    }
    check(&long, 0);
}

#[test]
fn no_type_is_implemented_in_too_many_files() {
    let mut scattered = Vec::new();
    for of in Crate::selected() {
        for ((name, declaring), files) in declarations::implementations(&of) {
            if files.len() > MOST_FILES_OF_A_TYPE {
                let list: Vec<&str> = files.iter().map(String::as_str).collect();
                let list = list.join("\n    ");
                scattered
                    .push(format!("{name} of {declaring} in {} files:\n    {list}", files.len()));
            }
        }
    }
    check(&scattered, SCATTERED_TYPES);
}

#[test]
fn no_type_name_has_many_meanings() {
    let is_checked = |files: &[String]| {
        let only = source::only().map(|only| only + "/");
        only.is_none_or(|only| files.iter().any(|file| file.starts_with(&only)))
    };
    let types = declarations::types(&Crate::all()).into_iter();
    let many = types.filter(|(_, files)| files.len() > MOST_DECLARATIONS && is_checked(files));
    let texts = many.map(|(name, files)| {
        format!("{name} is declared {} times:\n    {}", files.len(), files.join("\n    "))
    });
    check(&texts.collect::<Vec<_>>(), AMBIGUOUS_NAMES);
}

#[test]
fn each_small_file_has_a_reason() {
    let mut small = Vec::new();
    let mut reasons: BTreeMap<&str, &str> = REASONS.iter().copied().collect();
    for of in Crate::selected() {
        for source in of.files.values() {
            let lines = source.text.lines().count();
            if lines < SMALL && !source.is_index() {
                let path = of.path(source);
                if reasons.remove(path.as_str()).is_none() {
                    small.push(format!("{path} has {lines} lines"));
                }
            }
        }
    }
    check(&small, 0);
    let is_complete = source::only().is_some() || reasons.is_empty();
    assert!(is_complete, "these need no reason, or are gone: {reasons:?}");
}

#[test]
fn there_are_few_cfgs() {
    let (mut number, mut found) = (0, Vec::new());
    for of in Crate::selected() {
        for source in of.files.values() {
            let words = imports::words(&source.product);
            let is_cfg = |three: &&[String]| {
                let is_name = matches!(three[0].as_str(), "cfg" | "cfg_attr");
                is_name && (three[1] == "(" || three[1] == "!" && three[2] == "(")
            };
            let count = words.windows(3).filter(is_cfg).count();
            number += count;
            if count > 0 {
                found.push(format!("{count} in {}", of.path(source)));
            }
        }
    }
    check_number(number, &found, CFGS);
}

#[test]
fn the_core_has_no_io() {
    const IO: [&str; 3] = ["net", "fs", "io"];
    let crates = Crate::all();
    let core = crates.iter().find(|of| of.name == "distlock-core").expect("the core");
    let mut found = Vec::new();
    for source in core.files.values() {
        let is_io = |path: &&Vec<String>| {
            path[0] == "tokio" || path[0] == "std" && IO.contains(&path[1].as_str())
        };
        let paths = imports::all_paths(&source.product);
        let paths = paths.iter().filter(is_io).map(|path| path.join("::"));
        found.extend(paths.map(|path| format!("{}: {path}", core.path(source))));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let dependencies = dependencies::of("distlock-core", true);
    assert!(!dependencies.iter().any(|name| name == "tokio"), "{dependencies:?}");
}

#[test]
fn the_core_has_no_cfg() {
    let crates = Crate::all();
    let core = crates.iter().find(|of| of.name == "distlock-core").expect("the core");
    let is_cfg = |word: &String| word == "cfg" || word == "cfg_attr";
    let with_cfg =
        core.files.values().filter(|file| imports::words(&file.product).iter().any(is_cfg));
    let with_cfg: Vec<String> = with_cfg.map(|file| core.path(file)).collect();
    assert!(with_cfg.is_empty(), "{}", with_cfg.join("\n"));
}

#[test]
fn few_comments_begin_with_what() {
    let mut found = Vec::new();
    for of in Crate::selected() {
        for source in of.files.values() {
            let comments = source.comments().map(|line| line.trim_start_matches(['/', '!']).trim());
            let comments = comments.filter(|line| line.starts_with("What "));
            found.extend(comments.map(|line| format!("{}: {line}", of.path(source))));
        }
    }
    check(&found, WHAT);
}

/// The core knows no store, a store no runtime, and the runtime neither the facade nor the program.
#[test]
fn dependencies_point_down() {
    const LEVELS: [&[&str]; 6] = [
        &["distlock-platform", "distlock-macros"],
        &["distlock-core"],
        &["distlock-redis", "distlock-postgres", "distlock-etcd", "distlock-zookeeper"],
        &["distlock-runtime"],
        &["distlock"],
        &["distlock-cli"],
    ];
    let level = |name: &str| LEVELS.iter().position(|names| names.contains(&name));
    for of in Crate::all() {
        let own = level(&of.name).unwrap_or_else(|| panic!("{}: give it a level", of.name));
        for name in dependencies::of(&of.folder.display().to_string(), false) {
            let is_below = level(&name).is_none_or(|below| below < own);
            assert!(is_below, "{} depends on {name}", of.name);
        }
    }
}
