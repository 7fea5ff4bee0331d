//! The lengths of functions.

/// The most lines of a function.
const LONGEST: usize = 60;

/// Returns the lines where functions begin that are too long, and their lengths. Tests may contain long tables.
pub(crate) fn too_long(text: &str) -> Vec<(usize, usize)> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = product.lines().collect();
    let lengths = (0..lines.len()).filter_map(|at| Some((at + 1, length(&lines, at)?)));
    lengths.filter(|(_, length)| *length > LONGEST).collect()
}

/// Returns the length of the function with a body that begins at a line.
fn length(lines: &[&str], at: usize) -> Option<usize> {
    let line = lines[at];
    let is_function = line.split_whitespace().take(5).any(|word| word == "fn");
    // A comment or a text may contain the word.
    if !is_function || line.trim_start().starts_with(['/', '"']) {
        return None;
    }
    let has_no_body =
        lines[at..].iter().take_while(|line| !line.contains('{')).any(|line| line.ends_with(';'));
    if has_no_body || line.trim_end().ends_with('}') {
        return None;
    }
    // The body ends where a brace closes at the depth of the signature.
    let indent = line.len() - line.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    Some(lines[at..].iter().position(|line| *line == end).map_or(1, |end| end + 1))
}

#[test]
fn functions_are_measured() {
    let body = "    x();\n".repeat(LONGEST);
    let text = format!(
        "/// Not a fn {{\nfn a() {{}}\n\n    pub(crate) async fn b() {{\n{body}    }}\nfn c();\n"
    );
    assert_eq!(too_long(&text), [(4, LONGEST + 2)]);
}
