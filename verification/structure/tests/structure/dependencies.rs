//! The dependencies in the manifests of the crates.

use std::fs;

use crate::source::workspace;

/// Returns the dependencies of the crate in a folder; on request also those of its tests.
pub(crate) fn of(folder: &str, with_dev: bool) -> Vec<String> {
    let path = workspace().join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut names = Vec::new();
    let mut is_dependencies = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']').rsplit('.').next().unwrap_or_default();
            is_dependencies = section == "dependencies" && !line.starts_with("[workspace")
                || section == "build-dependencies"
                || section == "dev-dependencies" && with_dev;
        } else if is_dependencies && line.starts_with(|c: char| c.is_alphanumeric()) {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            names.push(line[..end].to_owned());
        }
    }
    assert!(!names.is_empty(), "{}: no dependency was found", path.display());
    names
}
