//! Every link of every Markdown page leads somewhere: relative links to a file that exists, anchors to a
//! heading that exists, in the repository and on docs.rs.
//!
//! A page that is also part of the API documentation cannot link to files, which docs.rs does not have:
//! there a relative link is written as a reference (`[the guide][start]`), and the page is included behind
//! definitions that lead to docs.rs instead. The links of the documentation itself are checked by rustdoc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// How this repository is called from outside, in front of a path.
const FORGE: [&str; 2] = [
    "https://github.com/distlock/distlock/blob/main/",
    "https://github.com/distlock/distlock/tree/main/",
];

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let pages = files(Path::new(ROOT), "md");
    assert!(pages.contains(&Path::new(ROOT).join("README.md")), "the walk finds nothing");
    let mut dead = Vec::new();
    for path in &pages {
        let page = Page::read(path);
        for target in page.targets() {
            if let Err(reason) = check(path, &target) {
                dead.push(format!("{}: ({target}) {reason}", shown(path)));
            }
        }
        for label in &page.used {
            if !page.definitions.contains_key(label) {
                dead.push(format!("{}: [{label}] is not defined", shown(path)));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn pages_of_the_documentation_do_not_link_to_files() {
    let mut dead = Vec::new();
    let mut included = 0;
    let sources = ["src", "distlock-runtime/src"].map(|folder| Path::new(ROOT).join(folder));
    for source in sources.iter().flat_map(|folder| files(folder, "rs")) {
        for pages in included_together(&source) {
            included += pages.len();
            let text: Vec<String> = pages.iter().map(|page| read(page)).collect();
            let page = Page::parse(&text.join("\n\n"));
            for target in page.targets().filter(|target| !is_from_anywhere(target)) {
                let last = pages.last().map(|page| shown(page)).unwrap_or_default();
                dead.push(format!("{}: {last} links to the file {target}", shown(&source)));
            }
        }
    }
    assert!(included > 0, "no page is found to be included");
    assert!(dead.is_empty(), "dead on docs.rs:\n{}", dead.join("\n"));
}

/// What is read of a page.
#[derive(Default)]
struct Page {
    /// Targets of `[text](target)`, and of links in HTML.
    inline: Vec<String>,
    /// Of `[label]: target`; the first definition of a label counts.
    definitions: BTreeMap<String, String>,
    /// Labels of `[text][label]`.
    used: BTreeSet<String>,
    /// The anchors of its headings.
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        Self::parse(&read(path))
    }

    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in outside_of_code(text) {
            if let Some(heading) = heading(&line) {
                let anchor = slug(heading);
                let count = seen.entry(anchor.clone()).or_default();
                page.anchors.insert(match *count {
                    0 => anchor,
                    count => format!("{anchor}-{count}"),
                });
                *count += 1;
            }
            let line = without_code_spans(&line);
            for attribute in ["id=\"", "name=\""] {
                page.anchors.extend(quoted_after(&line, attribute));
            }
            for attribute in ["href=\"", "src=\""] {
                page.inline.extend(quoted_after(&line, attribute));
            }
            match definition(&line) {
                Some((label, target)) => {
                    page.definitions.entry(label).or_insert(target);
                }
                None => page.links(&line),
            }
        }
        page
    }

    fn links(&mut self, line: &str) {
        for (at, _) in line.match_indices("](") {
            if let Some(target) = line[at + 2..].split([')', ' ']).next() {
                self.inline.push(target.trim_matches(['<', '>']).to_owned());
            }
        }
        for (at, _) in line.match_indices("][") {
            if let Some((label, _)) = line[at + 2..].split_once(']')
                && !label.is_empty()
            {
                self.used.insert(label.to_lowercase());
            }
        }
    }

    fn targets(&self) -> impl Iterator<Item = String> {
        self.inline.iter().chain(self.definitions.values()).cloned()
    }
}

/// Whether the target of a link is there; if not, what is missing.
fn check(from: &Path, target: &str) -> Result<(), String> {
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let file = match FORGE.iter().find_map(|forge| path.strip_prefix(forge)) {
        Some(path) => Path::new(ROOT).join(path),
        None if is_from_anywhere(target) && !target.starts_with('#') => return Ok(()),
        None if path.is_empty() => from.to_owned(),
        None => normal(&from.parent().unwrap_or(Path::new(ROOT)).join(path)),
    };
    if !file.starts_with(ROOT) || !file.exists() {
        return Err("there is no such file".to_owned());
    }
    match anchor {
        Some(anchor) if file.extension().is_some_and(|extension| extension == "md") => {
            let there = Page::read(&file).anchors.contains(anchor);
            there.then_some(()).ok_or_else(|| "there is no such heading".to_owned())
        }
        _ => Ok(()),
    }
}

/// A URL, an item of Rust, or a place in the same page: right wherever the page is shown.
fn is_from_anywhere(target: &str) -> bool {
    let is_item = |target: &str| {
        let path = target.split('@').next_back().unwrap_or(target);
        let path = path.split('#').next().unwrap_or(path).trim_end_matches(['!', '(', ')']);
        target.contains("::") || target.contains('@') || !path.contains(['.', '/'])
    };
    let schemes = ["#", "https://", "http://", "mailto:", "data:"];
    schemes.iter().any(|scheme| target.starts_with(scheme)) || is_item(target)
}

/// The pages that each item's documentation includes, in order.
fn included_together(source: &Path) -> Vec<Vec<PathBuf>> {
    let folder = source.parent().unwrap_or(Path::new(ROOT));
    let mut groups = vec![Vec::new()];
    for line in read(source).lines().map(str::trim) {
        let is_doc = line.contains("doc = include_str!(");
        match line.split_once("include_str!(\"").and_then(|(_, rest)| rest.split_once('"')) {
            Some((path, _)) if is_doc => {
                groups.last_mut().expect("one at least").push(normal(&folder.join(path)));
            }
            _ if line.starts_with("//") || line.starts_with("#[") || line.starts_with("#![") => {}
            _ => groups.push(Vec::new()),
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// The lines that are text.
fn outside_of_code(text: &str) -> Vec<String> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push(line.to_owned()),
            (Some(_), _) => {}
        }
    }
    lines
}

/// Without what stands in backticks, so that code is not taken for a link.
fn without_code_spans(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 0 { part } else { "" }).collect()
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// The anchor of a heading, as forges make it.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // `[text](target)` is its text.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    text.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn definition(line: &str) -> Option<(String, String)> {
    let (label, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    let target = target.split_whitespace().next()?;
    (!label.contains(']')).then(|| (label.to_lowercase(), target.to_owned()))
}

fn quoted_after(line: &str, attribute: &str) -> Vec<String> {
    let values = line.split(attribute).skip(1).filter_map(|rest| rest.split_once('"'));
    values.map(|(value, _)| value.to_owned()).collect()
}

/// Without `..`; the file need not exist.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            let is_ours = name != "target" && (!name.starts_with('.') || name == ".github");
            found.extend(is_ours.then(|| files(&path, extension)).into_iter().flatten());
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap_or(path).display().to_string()
}

#[test]
fn dead_links_are_found() {
    let readme = Path::new(ROOT).join("README.md");
    for (target, is_there) in [
        ("CHANGELOG.md", true),
        ("./src/../CHANGELOG.md", true),
        ("no-such-file.md", false),
        ("../outside.md", false),
        ("CHANGELOG.md#no-such-heading", false),
        ("#no-such-heading", false),
        ("https://example.org/no-such-file.md", true),
        ("https://github.com/distlock/distlock/blob/main/no-such-file.md", false),
        ("crate::LockError", true),
        ("macro@crate::redis_lock", true),
    ] {
        assert_eq!(check(&readme, target).is_ok(), is_there, "{target}");
    }
    let page = Page::parse(
        "# One `two` [three](x.md)\n\n# A\n# A\n[r]: first.md\n[r]: second.md\n\
         a [b](c.md \"title\"), `[d](e.md)` and [f][R]\n```\n[g](h.md)\n```\n<img src=\"i.svg\">",
    );
    assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["a", "a-1", "one-two-three"]);
    assert_eq!(page.targets().collect::<Vec<_>>(), ["x.md", "c.md", "i.svg", "first.md"]);
    assert!(page.used.contains("r") && page.used.len() == 1);
}
